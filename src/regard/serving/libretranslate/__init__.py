"""LibreTranslate's protocol for a service: its routes, and HTML, subtitles and files as its clients send them."""
