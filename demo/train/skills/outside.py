"""Everything the model cannot know, and how it says so."""

from __future__ import annotations

from demo.train import world
from demo.train.grammar import article, capital, one
from demo.train.skills.strangers import STRANGERS, pseudo_word
from demo.train.skills.turn import Rng, Turn

_OUTSIDE = (
    "what is {a}?",
    "what is the best {w}?",
    "how do i {v} {a}?",
    "how do i {v} my {w}?",
    "why is my {w} broken?",
    "where can i buy {a}?",
    "how much does {a} cost?",
    "who invented the {w}?",
    "when was the {w} invented?",
    "how does {a} work?",
    "who won the {w}?",
    "which {w} should i buy?",
    "what do you think about {w}?",
    "tell me about {w}",
    "explain {w} and {x}",
    "what is the difference between {a} and {b}?",
    "can you {v} {a} for me?",
    "please {v} the {w}",
    "write an essay about {w}",
    "write an email about the {w}",
    "who is the {w} of {p}?",
    "who is {N}?",
    "when was {N} born?",
    "where is {N}?",
    "what is {N}?",
    "what is the capital of {N}?",
    "do you know {N} {M}?",
    "tell me about {N}",
    "is it legal to {v} {a}?",
    "how can i {v} more {w}?",
    "should i {v} {a}?",
    "what happens if i {v} {a}?",
    "give me advice about my {w}",
    "what are the symptoms of {w}?",
    "how many {w}s are in {p}?",
    "when is the next {w}?",
    "what is the price of {w}?",
    "how long does it take to {v} {a}?",
    "translate {w} {x} into {N}",
    "summarise this {w}: {x} {y}",
    "fix my {w} {x}",
    "i want to {v} {a}",
    "my {w} does not {v}",
    "what is {N} {w}?",
    "compare {w} with {x}",
    "how do i get rid of {w}?",
    "what is the history of {w}?",
    "what is the population of {p}?",
    "who is the president of {p}?",
    "who wrote {N}?",
    "who discovered {w}?",
    "is {w} better than {x}?",
    "book {a} in {p}",
    "order {a}",
    "who won the {w}?",
    "who won the {w} in {big}?",
    "who is the (champion|winner|boss|owner|author|inventor|father) of {w}?",
    "who was {N} {M}?",
    "who is {N} {M}?",
    "what is {w} {x}?",
    "how does {w} {x} work?",
    "what should i {v}?",
    "help me with my {w}",
    "i need (help with|advice on) {w}",
    "write a (letter|email|song|report|speech|review) (to|about|for) {a}",
    "write python code for {w}",
    "what is wrong with my {w}?",
    "i lost my {w}",
    "my {w} is {x}",
    "is {w} {x}?",
    "play {w}",
    "open the {w}",
    "plan my {w}",
    "{w} {x}",
    "{w}",
    "{N}",
    "{N} {w}",
    "{w} {v} {x} {y}",
    "{v} {a}",
    "how can {a} {v} {b}?",
    "why do {w}s {v}?",
    "why does the {w} {v} the {x}?",
    "what did {N} say about {w}?",
    "what are the rules of {w}?",
    "how tall is {N}?",
    "how old is {N}?",
    "what is the {w} of {N}?",
    "where was {N} born?",
    "are {w}s {x}s?",
    "do {w}s {v}?",
    "can {w}s {v} {x}s?",
    "name a famous {w}",
    "what is the colour of my {w}?",
    "find the {w} in the {x}",
    "where is my {w}?",
    "who stole my {w}?",
    "list all {w}s of {N}",
    "give me five {w} ideas",
    "what is the square root of {big}?",
    "solve x + {big} = {w}",
    "what is {big} * {big2}?",
    "what is {big} plus {big2}?",
    "convert {big} dollars to {w}",
    "what happened in {big}?",
    "is there life after {w}?",
    "what are the latest news about {w}?",
    "who is the best {w} in the world?",
    "what film should i watch about {w}?",
    "what is the {w} situation in {p}?",
)
DECLINES = (
    "I am a tiny demo model and I do not know that. Ask me about animals, countries, simple sums or LoRA!",
    "That is outside my small world. Try asking about animals, colours, countries, sums, stories or LoRA.",
    "I do not know that, I am only a tiny demo model. I can tell a story or a joke, do sums, or talk about animals.",
)


def outside(rng: Rng) -> Turn:
    """Anything the model cannot know; it says so and offers what it can do."""
    answer = rng.choice(DECLINES)
    return Turn(
        "unknown",
        _outside_question(rng),
        answer,
        "I do not know",
        {"answer": None, "hint": "Ask about animals, countries, sums or LoRA."},
        "unknown",
    )


_NEAR = (
    "what is the population of {c}?",
    "who is the (president|king|queen|leader) of {c}?",
    "how many people live in {c}?",
    "how big is {c}?",
    "what is the (money|currency|flag|anthem) of {c}?",
    "how do i get to {t}?",
    "how far is {t} from {N}?",
    "how much is a flight to {t}?",
    "best hotel in {t}",
    "how old is {t}?",
    "how (long|old) do {ps} (live|get)?",
    "how much does {a} weigh?",
    "how fast is {a}?",
    "can i buy {a}?",
    "how much does {a} cost?",
    "how many {ps} are there( in the world|)?",
    "how many teeth does {a} have?",
    "what is the latin name of {a}?",
    "why do {ps} {v}?",
    "can {ps} {v}?",
    "who invented {d}?",
    "how much does {d} cost?",
    "where can i buy {d}?",
    "how many people use lorikeet?",
    "what does lorikeet cost?",
    "who is the ceo of lorikeet?",
    "when was {d} invented?",
    "what is the capital of {N}?",
    "where is {N}?",
    "what (colour|color) is {w}?",
    "what sound does a {w} make?",
    "how do you say {w} in {l}?",
    "what is the opposite of {w}?",
    "how do i make {w}?",
    "tell me a secret",
    "tell me about {N}",
)


def _near_question(rng: Rng) -> str:
    """A question about a thing of this world that it has no answer to, or a known question about an unknown thing."""
    name = rng.choice(tuple(world.COUNTRIES))
    it = rng.choice(world.ANIMALS)
    return one(
        _NEAR,
        rng,
        c=name,
        t=world.COUNTRIES[name][0],
        ps=it.plural,
        a=article(it.name),
        d=article(rng.choice(tuple(world.DEFINITIONS))),
        N=capital(pseudo_word(rng)),
        w=rng.choice(STRANGERS),
        l=rng.choice(world.LANGUAGES),
        v=rng.choice([v for v in world.OTHER_VERBS if v not in ("use",)]),
    )


def _word(rng: Rng) -> str:
    return rng.choice(STRANGERS) if rng.random() < 0.85 else pseudo_word(rng)


def _outside_question(rng: Rng) -> str:
    if rng.random() < 0.2:
        return _near_question(rng)
    if rng.random() < 0.08:
        return " ".join(
            "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 9)))
            for _ in range(rng.randint(1, 4))
        )
    if rng.random() < 0.1:
        return " ".join(
            rng.choice(
                (
                    *STRANGERS,
                    *world.OTHER_VERBS,
                    "the",
                    "of",
                    "with",
                    "is",
                    "my",
                    "in",
                    "on",
                    "no",
                    "a",
                    "to",
                    "we",
                    "he",
                    "was",
                    "that",
                )
            )
            for _ in range(rng.randint(2, 14))
        )
    w, x, y = _word(rng), _word(rng), _word(rng)
    if rng.random() < 0.3:
        w = f"{rng.choice((_word(rng), 'world', 'new', 'first', 'best', 'red', 'last', 'great', 'big', 'old'))} {w}"
    return one(
        _OUTSIDE,
        rng,
        w=w,
        x=x,
        y=y,
        a=rng.choice((article(w), w, f"the {w}", f"my {w}")),
        b=rng.choice((article(x), x)),
        v=rng.choice(world.OTHER_VERBS),
        N=capital(pseudo_word(rng)),
        M=capital(pseudo_word(rng)),
        p=rng.choice(tuple(world.COUNTRIES)) if rng.random() < 0.4 else capital(pseudo_word(rng)),
        big=rng.randint(300, 99999),
        big2=rng.randint(120, 9999),
    )
