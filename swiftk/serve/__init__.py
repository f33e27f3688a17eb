"""An HTTP server that speaks OpenAI's protocol: `swiftk serve MODEL`, or app.make_app() for a host of its own."""
