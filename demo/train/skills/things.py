"""Planets, weather, jobs, LoRA, the model itself, small talk."""

from __future__ import annotations

from dataclasses import replace

from demo.train import world
from demo.train.about import CONCEPTS, HELP_TOPICS, SELF, SMALL_TALK, Concept
from demo.train.grammar import article, capital, fill, one
from demo.train.skills.turn import NUMBER_WORDS, Rng, Turn


def planet(rng: Rng) -> Turn:
    """A planet, the sun, the moon."""
    if rng.random() < 0.45:
        question, answer, short = rng.choice(
            (
                ("(which|what) is the (largest|biggest) planet?", "The largest planet is Jupiter.", "Jupiter"),
                ("(which|what) is the smallest planet?", "The smallest planet is Mercury.", "Mercury"),
                (
                    "(which|what) planet is (closest|nearest) to the sun?",
                    "Mercury is the closest planet to the sun.",
                    "Mercury",
                ),
                (
                    "(which|what) planet is (farthest|furthest) from the sun?",
                    "Neptune is the farthest planet from the sun.",
                    "Neptune",
                ),
                ("(which|what) planet has rings?", "Saturn has bright rings of ice.", "Saturn"),
                ("(which|what) (planet is|is) the red planet?", "Mars is called the red planet.", "Mars"),
                (
                    "(which|what) (is the hottest planet|planet is the hottest)?",
                    "Venus is the hottest planet.",
                    "Venus",
                ),
                ("(what|) (planet do we live on|is our planet called)?", "We live on Earth.", "Earth"),
                (
                    "what is the (moon|moon made of)?",
                    "The moon is a ball of rock that goes around the Earth.",
                    "A ball of rock",
                ),
                ("what is the sun?", "The sun is a star, a huge ball of hot gas.", "A star"),
                (
                    "(why is the sky blue|why do we see a blue sky)?",
                    "The sky is blue because air scatters blue light more than red light.",
                    "Air scatters blue light",
                ),
                (
                    "how far is the sun?",
                    "Light from the sun needs about eight minutes to reach us.",
                    "Eight light minutes",
                ),
                (
                    "(name|list) (all|) the planets",
                    "Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus and Neptune.",
                    "Mercury to Neptune",
                ),
                (
                    "why (is it|does it get) dark at night?",
                    "It is dark at night because the Earth turns us away from the sun.",
                    "The Earth turns",
                ),
                ("is the (earth|world) (flat|round)?", "The Earth is round, like a ball.", "Round"),
                (
                    "why (are leaves|is grass|are plants) green?",
                    "Plants are green because they hold chlorophyll, which catches light.",
                    "Chlorophyll",
                ),
                (
                    "why is the sea salty?",
                    "The sea is salty because rivers carry salt from rocks into it.",
                    "Salt from rocks",
                ),
                (
                    "why do (we|people) (need|) sleep?",
                    "Sleep lets body and mind rest and repair themselves.",
                    "To rest",
                ),
                (
                    "how do (planes|airplanes|birds) fly?",
                    "Wings push air down, and the air pushes the wings up.",
                    "Wings push air down",
                ),
                (
                    "why do leaves fall( in autumn|)?",
                    "Trees drop their leaves to save water and energy in winter.",
                    "To save water",
                ),
                ("how do plants grow?", "Plants grow from seeds with light, water and air.", "From seeds"),
                ("what is water( made of|)?", "Water is made of hydrogen and oxygen.", "Hydrogen and oxygen"),
                (
                    "what is the (largest|biggest) animal( in the world|)?",
                    "The blue whale is the largest animal of all.",
                    "The blue whale",
                ),
                (
                    "what is the (tallest|highest) animal( in the world|)?",
                    "The giraffe is the tallest animal on land.",
                    "The giraffe",
                ),
                (
                    "what is the (highest|tallest) mountain( in the world|)?",
                    "The highest mountain is Mount Everest.",
                    "Mount Everest",
                ),
                ("what is the (largest|biggest) ocean?", "The largest ocean is the Pacific.", "The Pacific"),
                (
                    "what is the (largest|biggest) country( in the world|)?",
                    "The largest country by area is Russia.",
                    "Russia",
                ),
                ("what is the fastest animal( on land|)?", "The cheetah is the fastest animal on land.", "The cheetah"),
                (
                    "what is the longest river( in the world|)?",
                    "The Nile is often called the longest river.",
                    "The Nile",
                ),
            )
        )
        return Turn("nature", fill(question, rng), answer, short, {"answer": short}, short)
    name = rng.choice(tuple(world.PLANETS))
    question = one(
        (
            "what is {n}?",
            "tell me about {n}",
            "what do you know about {n}?",
            "{n}",
            "describe {n}",
            "tell me about the planet {n}",
            "what kind of planet is {n}?",
            "is {n} a planet?",
        ),
        rng,
        n=name,
    )
    return Turn(
        "nature",
        question,
        f"{name} is {world.PLANETS[name]}.",
        capital(world.PLANETS[name].split(",")[0]),
        {"planet": name, "about": world.PLANETS[name]},
        name,
    )


def weather(rng: Rng) -> Turn:
    """What a kind of weather is, and what to do in it."""
    kind = rng.choice(tuple(world.WEATHER))
    what, wear = world.WEATHER[kind]
    if rng.random() < 0.5:
        question = one(
            (
                "what is {k}?",
                "explain {k}",
                "how does {k} (work|form|happen)?",
                "tell me about {k}",
                "where does {k} come from?",
                "why (is there|do we have) {k}?",
                "define {k}",
            ),
            rng,
            k=kind,
        )
        return Turn(
            "weather",
            question,
            what + ".",
            what.split(" is ", 1)[-1].capitalize(),
            {"weather": kind, "about": what},
            kind,
        )
    words = rng.choice(world.WEATHER_WORDS[kind])
    question = one(
        (
            "what should i wear when {w}?",
            "what do i wear if {w}?",
            "what should i do when {w}?",
            "{w}, what should i wear?",
            "{w} today, what should i do?",
            "what to wear when {w}",
            "{w}. what now?",
            "should i (take|bring) (an umbrella|a coat|a hat|boots) (if|when) {w}?",
            "do i need (a coat|an umbrella|a jacket) when {w}?",
            "what do you do when {w}?",
            "what do people wear when {w}?",
            "how do i dress when {w}?",
            "{w} outside",
            "what clothes do i need when {w}?",
        ),
        rng,
        w=words,
    )
    return Turn("weather", question, f"{wear}.", wear, {"weather": kind, "advice": wear}, kind)


def job(rng: Rng) -> Turn:
    """What someone does at work."""
    name = rng.choice(tuple(world.JOBS))
    does = world.JOBS[name]
    if rng.random() < 0.75:
        question = one(
            (
                "what does {a} do?",
                "what is {a}?",
                "what is the job of {a}?",
                "what do {n}s do?",
                "tell me what {a} does",
                "{n} job",
                "explain the job of {a}",
                "what is the work of {a}?",
            ),
            rng,
            a=article(name),
            n=name,
        )
        return Turn(
            "jobs", question, f"{capital(article(name))} {does}.", capital(does), {"job": name, "does": does}, name
        )
    question = one(("who {d}?", "which (job|person) {d}?", "what do you call someone who {d}?"), rng, d=does)
    return Turn("jobs", question, f"{capital(article(name))} {does}.", capital(name), {"job": name, "does": does}, name)


def wheels(rng: Rng) -> Turn:
    """How many wheels a vehicle has."""
    name = rng.choice(tuple(world.WHEELS))
    n = world.WHEELS[name]
    many = "many" if name == "train" else NUMBER_WORDS[n]
    question = one(
        (
            "how many wheels does {a} have?",
            "how many wheels has {a}?",
            "number of wheels of {a}",
            "does {a} have wheels?",
            "how many wheels do you see on {a}?",
        ),
        rng,
        a=article(name),
    )
    return Turn(
        "counting",
        question,
        f"{capital(article(name))} has {many} wheel{'' if n == 1 else 's'}.",
        capital(many),
        {"vehicle": name, "wheels": many if name == "train" else n},
        name,
    )


def concept(rng: Rng) -> Turn:
    """LoRA and Lorikeet."""
    item = rng.choices(CONCEPTS, [6, 6, 4] + [1] * (len(CONCEPTS) - 3))[0]
    return _concept_turn(rng, item, more=rng.random() < 0.3)


_PROPER = {
    "lora": "LoRA",
    "lorikeet": "Lorikeet",
    "peft": "PEFT",
    "rslora": "rsLoRA",
    "kv": "KV",
    "gpu": "GPU",
    "gpus": "GPUs",
    "cpu": "CPU",
    "llm": "LLM",
    "gqa": "GQA",
    "api": "API",
    "ttft": "TTFT",
    "apache": "Apache",
}


def proper(name: str, rng: Rng) -> str:
    """A term the way it is written in books, most of the time."""
    return " ".join(_PROPER.get(word, word) for word in name.split(" ")) if rng.random() < 0.65 else name


def _concept_turn(rng: Rng, item: Concept, *, more: bool) -> Turn:
    name = proper(rng.choice(item.names), rng)
    if more:
        question = one(
            (
                "why (do we need|use|is there|does one need) {n}?",
                "why does {n} matter?",
                "what is {n} good for?",
                "why is {n} (useful|important|helpful)?",
                "tell me more about {n}",
                "what are the advantages of {n}?",
                "when do i need {n}?",
                "what is the point of {n}?",
                "why {n}?",
            ),
            rng,
            n=name,
        )
    else:
        question = one(
            (
                "what is {n}?",
                "what is {n}?",
                "what's {n}?",
                "explain {n}",
                "define {n}",
                "what does {n} mean?",
                "how does {n} work?",
                "tell me about {n}",
                "what do you know about {n}?",
                "{n}",
                "{n}?",
                "can you explain {n}?",
                "what is meant by {n}?",
                "explain {n} in simple words",
                "i do not understand {n}",
                "describe {n}",
                "what are {n}?",
                "in lorikeet, what is {n}?",
                "explain {n} to a child",
                "give me a short explanation of {n}",
            ),
            rng,
            n=name,
        )

    def again(rng: Rng) -> Turn:
        turn = _concept_turn(rng, item, more=True)
        return replace(
            turn,
            question=one(
                (
                    "why?",
                    "why is that useful?",
                    "tell me more",
                    "and why does it matter?",
                    "why does that matter?",
                    "what is it good for?",
                    "more please",
                    "can you tell me more about it?",
                ),
                rng,
            ),
        )

    text = item.more if more else item.what
    about = item.names[0].removeprefix("a ").removeprefix("an ").removeprefix("the ")
    return Turn(
        "lora", question, text, item.short, {"term": about, "answer": text}, about, again=None if more else again
    )


def about_me(rng: Rng) -> Turn:
    """Questions about the model itself."""
    key = rng.choices(
        tuple(SELF),
        [6 if k in ("name", "skills") else 2 if k in ("maker", "size", "weather", "live") else 1 for k in SELF],
    )[0]
    questions, answers, short = SELF[key]
    place = rng.choice([row[0] for row in world.COUNTRIES.values()])
    answer = rng.choice(answers).format(topics=HELP_TOPICS)
    return Turn(
        "about me", proper(one(questions, rng, place=place), rng), answer, short, {"answer": answer}, "lorikeet"
    )


def small_talk(rng: Rng) -> Turn:
    """Greetings, thanks, moods."""
    if rng.random() < 0.25:
        key = rng.choice(tuple(world.ADVICE))
        text, asks = world.ADVICE[key]
        return Turn(
            "small talk", rng.choice(asks), text, text.split(".")[0].split("!")[0], {"mood": key, "answer": text}, key
        )
    key = rng.choices(
        tuple(SMALL_TALK), [5 if k == "hello" else 3 if k in ("how", "thanks", "bye") else 1 for k in SMALL_TALK]
    )[0]
    questions, answers, short = SMALL_TALK[key]
    answer = rng.choice(answers)
    return Turn("small talk", one(questions, rng), answer, short, {"answer": answer}, key)
