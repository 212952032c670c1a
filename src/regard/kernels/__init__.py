"""Operations under the attention module: plain references, fast versions, and the one table of who serves what."""
