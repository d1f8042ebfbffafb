"""The markers of OpenAI's harmony format, which are special tokens of GPT-OSS."""

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
# The ends of a message: within an answer, of an answer, and of a call.
ENDS = ("<|end|>", "<|return|>", "<|call|>")
MARKERS = (START, CHANNEL, MESSAGE, CONSTRAIN, *ENDS)
# Prefix of the recipients that are tools.
FUNCTIONS = "functions."
