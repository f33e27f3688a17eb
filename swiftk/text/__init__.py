"""From a prompt to tokens and back: tokenizers, chat templates, stops, grammars."""
