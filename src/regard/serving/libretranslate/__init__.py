"""LibreTranslate's protocol over a service: its routes, and HTML, subtitles and files as its clients send them."""
