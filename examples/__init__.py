"""Examples that come with parax. Owns nothing that the library needs; may import parax as any user would."""
