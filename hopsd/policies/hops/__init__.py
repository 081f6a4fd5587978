"""The Hops policy (SoCC 2024) and its variants with other priorities."""
