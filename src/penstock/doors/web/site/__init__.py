"""Pages and files of the web door: index, OpenAPI description, documentation, browser client."""
