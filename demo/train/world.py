"""The small closed world the demo model knows: plain facts, written for this project."""

from __future__ import annotations

from typing import NamedTuple

from demo.train.phrases import load

_TEXTS = load("world")


class Animal(NamedTuple):
    """One animal; `size` orders animals from small (0) to large (9)."""

    name: str
    plural: str
    sound: str
    food: str
    home: str
    legs: int
    baby: str
    kind: str
    colour: str
    size: int
    fact: str


ANIMALS: tuple[Animal, ...] = tuple(Animal(*row) for row in _TEXTS["animals"])

ADJECTIVES = _TEXTS["adjectives"]
THING_ADJECTIVES = _TEXTS["thing_adjectives"]
HEROES = _TEXTS["heroes"]

FLYERS = frozenset({"duck", "owl", "eagle", "parrot", "lorikeet", "swan", "crow", "bee", "butterfly", "bat"})
SWIMMERS = frozenset(
    {"duck", "penguin", "swan", "frog", "turtle", "crocodile", "fish", "shark", "whale", "dolphin", "octopus"}
)

# Country: capital, continent, language, a thing it is known for, the word for its people.
COUNTRIES: dict[str, tuple[str, str, str, str]] = _TEXTS["countries"]

# Thing: its usual colour.
COLOURS_OF: dict[str, str] = _TEXTS["colours_of"]
MASS_NOUNS = frozenset(_TEXTS["mass_nouns"])
UNIQUE_NOUNS = frozenset({"sky", "ocean", "night", "sun", "moon"})

MIXES: dict[frozenset[str], str] = {
    frozenset(("red", "yellow")): "orange",
    frozenset(("blue", "yellow")): "green",
    frozenset(("red", "blue")): "purple",
    frozenset(("red", "white")): "pink",
    frozenset(("black", "white")): "grey",
    frozenset(("red", "green")): "brown",
    frozenset(("blue", "white")): "light blue",
    frozenset(("orange", "blue")): "brown",
}

DEFINITIONS: dict[str, str] = _TEXTS["definitions"]

OPPOSITES: tuple[tuple[str, str], ...] = _TEXTS["opposites"]

JOBS: dict[str, str] = _TEXTS["jobs"]

WORDS_ABROAD: dict[str, tuple[str, str, str, str]] = _TEXTS["words_abroad"]
LANGUAGES = ("French", "Spanish", "German", "Italian")

PLANETS: dict[str, str] = _TEXTS["planets"]

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = _TEXTS["months"]
MONTH_DAYS = ("31", "28, or 29 in a leap year,", "31", "30", "31", "30", "31", "31", "30", "31", "30", "31")
SEASONS = _TEXTS["seasons"]
SEASON_FACTS = _TEXTS["season_facts"]

LISTS: dict[str, tuple[str, ...]] = {
    "animals": ("cat", "dog", "lion", "elephant", "owl", "fox", "penguin", "rabbit", "horse", "whale"),
    "birds": ("owl", "eagle", "parrot", "lorikeet", "penguin", "swan", "crow", "duck"),
    "fruits": ("apple", "banana", "cherry", "orange", "grape", "pear", "mango", "plum", "peach"),
    "vegetables": ("carrot", "potato", "onion", "spinach", "cucumber", "broccoli", "pumpkin", "pea"),
    "colours": ("red", "blue", "green", "yellow", "orange", "purple", "white", "black", "pink"),
    "cities": ("Paris", "Tokyo", "Rome", "Cairo", "Lima", "Oslo", "Nairobi", "Sydney", "London"),
    "countries": ("France", "Japan", "Kenya", "Brazil", "Canada", "Norway", "India", "Peru", "Egypt"),
    "planets": ("Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"),
    "days": DAYS,
    "months": MONTHS,
    "seasons": ("spring", "summer", "autumn", "winter"),
    "sports": ("football", "tennis", "swimming", "cycling", "running", "basketball", "skiing", "hockey"),
    "instruments": ("piano", "guitar", "violin", "flute", "drum", "trumpet", "harp", "cello"),
    "drinks": ("water", "tea", "coffee", "milk", "juice", "lemonade", "hot chocolate"),
    "flowers": ("rose", "tulip", "daisy", "lily", "sunflower", "violet", "orchid"),
    "trees": ("oak", "pine", "birch", "maple", "willow", "beech", "apple tree"),
    "jobs": ("baker", "teacher", "doctor", "pilot", "farmer", "nurse", "engineer", "writer"),
    "vehicles": ("car", "train", "bicycle", "bus", "ship", "airplane", "tram", "boat"),
    "shapes": ("circle", "square", "triangle", "rectangle", "hexagon", "star", "oval"),
    "continents": ("Africa", "Asia", "Europe", "North America", "South America", "Oceania", "Antarctica"),
    "languages": ("English", "French", "Spanish", "German", "Japanese", "Hindi", "Arabic"),
    "pets": ("dog", "cat", "rabbit", "goldfish", "hamster", "parrot"),
    "hobbies": ("reading", "painting", "gardening", "cooking", "singing", "hiking", "chess"),
    "sea animals": ("whale", "dolphin", "shark", "octopus", "turtle", "fish", "crab"),
    "farm animals": ("cow", "pig", "sheep", "goat", "chicken", "horse", "duck"),
    "wild animals": ("lion", "tiger", "wolf", "bear", "fox", "zebra", "giraffe"),
    "insects": ("bee", "ant", "butterfly", "fly", "beetle", "moth"),
    "toys": ("ball", "doll", "kite", "teddy bear", "puzzle", "toy car"),
    "clothes": ("shirt", "coat", "hat", "dress", "trousers", "socks", "scarf"),
    "rooms": ("kitchen", "bedroom", "bathroom", "living room", "cellar"),
    "numbers": ("one", "two", "three", "four", "five", "six", "seven", "eight"),
    "metals": ("iron", "gold", "silver", "copper", "tin"),
    "oceans": ("Pacific", "Atlantic", "Indian", "Arctic", "Southern"),
    "breakfasts": ("toast with jam", "porridge", "pancakes", "eggs", "fruit salad", "muesli"),
}

LIST_NAMES: dict[str, tuple[str, ...]] = _TEXTS["list_names"]
RHYMES: tuple[tuple[str, ...], ...] = _TEXTS["rhymes"]

WHEELS = _TEXTS["wheels"]

COUNTS: dict[str, tuple[str, int]] = _TEXTS["counts"]

RECIPES: dict[str, tuple[str, ...]] = _TEXTS["recipes"]

WEATHER: dict[str, tuple[str, str]] = _TEXTS["weather"]
WEATHER_WORDS = _TEXTS["weather_words"]

JOKES: tuple[tuple[str, str], ...] = _TEXTS["jokes"]

FUN_FACTS: tuple[str, ...] = _TEXTS["fun_facts"]

ADVICE: dict[str, tuple[str, tuple[str, ...]]] = _TEXTS["advice"]

RIDDLES: tuple[tuple[str, str], ...] = _TEXTS["riddles"]

CODE: dict[str, tuple[str, ...]] = _TEXTS["code"]

NAMES = _TEXTS["names"]

# Ordinary words that mean nothing special here; questions out of the world are made of them.
_WORDS = """
ability account acid adventure agency agreement airport alarm album ambition analysis antique apartment appeal application apron arena argument army
arrow article asset assistant athlete attack attic auction audience author avenue award axis bachelor backpack badge balance balcony balloon bandage
banker banner bargain barrel basement basket bathtub battle beard bedroom belief bench benefit beverage bitcoin blanket blender blood boiler bolt
bonus boots border bottle boundary bowl bracelet brain branch brand brick bride brother browser brush budget builder bullet bundle butter button
cabin cabinet cable calendar camera campaign candle canvas captain carbon career cargo carpet cash ceiling celebrity cement ceremony chain chair
champion chapter charity cheque chemistry chimney cigarette cinema civilization client clinic closet coach coalition code collar college column
committee company complaint concert concrete conference congress constitution contract copper copyright corner cosmetics cotton council coupon court
cousin crane credit crime crisis critic crown cruise crystal culture currency curtain customer cylinder damage dance danger data deadline debate debt
decade decision defence degree delivery demand deposit desk detective diamond diet diploma disease dispute district divorce document dollar domain
donation door draft drama dress drill driver drug economy editor education election elevator embassy emotion emperor employer engine enterprise
equation estate evidence evolution exchange executive exercise exhibition expense experiment expert export fabric factory failure faith fashion
fee fence festival fiction figure film filter finance finger firm flag flavour flight floor fluid football formula fortune foundation freedom
freight fuel fund funeral furniture garage gasoline gear gene generator genius ghost glacier glasses glove goal government grammar grant graph
guarantee guest guide guitar gun gym habit haircut hammer handle harbour hardware harvest headline heater helicopter heritage hero highway hockey
honor hook horizon hormone hotel household hydrogen hypothesis icon identity immigration import income index industry inflation influence injury
inspector insurance interest interview invasion invention investment invoice iron jacket jail jazz jewel jobless journal judge juice jury justice
kernel kettle keyboard kidney king kingdom kitchen knee knife knight label labour ladder lamp landlord laptop laser laundry lawn lawyer layer leader
league lecture legend lens licence lifestyle limb liquid literature loan lobby lock logic lottery luggage lung luxury machine magazine magic mailbox
maintenance manager manual manufacturer marathon margin marriage mask mathematics mattress mayor meeting membership memory merchant metal method
migration military mineral minister mirror missile mixture mobile mortgage motor movie muscle mystery myth nation necklace needle negotiation nerve
network newspaper nightmare nitrogen novel nuclear nutrition oath object office oil opera opinion orbit orchestra organ outfit oven owner package
painkiller palace panel parade parcel parliament partner passenger passport patent pattern payment pension pepper performance perfume permit
philosophy phone physics pillow pipe pistol plastic platform plaster plot pocket poison policy politics pollution pool portfolio portrait pottery
poverty power prayer presentation president pressure priest prince printer prison privacy prize procedure profit promotion property protein protest
psychology pump puzzle quality quantum quarter queen quota rabbit radar radio railway razor reactor rebellion receipt recession recorder refrigerator
refugee religion rent reporter republic reputation research resort retirement revenue revolution rhythm ribbon rifle ring risk ritual rope rubber
ruler rumour salary sandal satire sauce scandal scarf scenario schedule scholarship screen screw script sculpture secret sector security seminar
senate sentence server shampoo share shelf shelter shirt shoulder shower signal silk singer sink skeleton sketch skirt slogan smartphone soap soccer
society sofa software soldier solution spaceship speaker spectrum speech spell spirit sponsor stadium staff stage stairs stamp statistics statue
steel stereo stock stomach strategy strike studio subsidy suburb suitcase sunglasses supermarket surgery survey suspect sword symbol symphony
syndrome tablet tactic talent tank tariff tattoo tax taxi technique technology television temple tennis tent terrorism theatre theory therapy throne
ticket tile tire tobacco toilet tooth torch tourist towel tower toy tractor trade tradition traffic tragedy trailer transmission treasure treaty
trial tribe trophy trousers truck trumpet tunnel turbine tutor tyre umbrella uniform union universe university uranium vaccine vacuum valley
vampire vault vehicle verdict victim victory video villain vinegar violence virus visa vision vitamin vocabulary volleyball vote wallet wardrobe
warehouse warrior washer weapon website wedding weight wheat whisky widow wife window wine wire witness workshop wrestling wrist yacht yoga zipper zone
"""
_VERBS = """
accept achieve admire adopt advise afford analyse apply arrange arrest assemble attach avoid bake ban bet bend borrow break build burn calculate cancel
catch charge chase choose claim climb collect compare compete compile complain compose configure connect convert copy crack create cure cut debug decorate
defeat delete deliver deploy describe design destroy develop divide download drive earn edit employ escape evaluate examine exchange expand explode export
fasten fight file fix fold forecast format generate hack hang heal hide hire hunt improve increase install invest invent join judge jump kill launch lend
lift load lock manage measure melt merge mount negotiate obtain operate optimise order paint park patch pay plan plant polish predict prepare prevent
print produce program protect prove publish pump purchase raise record recover recycle reduce refuse register remove renovate rent repair replace report
rescue restart restore retire review rob sail scan schedule score seal search secure sew shoot solve sort split steal stop store study sue summarise
surf swap tie train transfer translate trap treat upgrade use vote wash weld win wrap
"""
OTHER_WORDS = tuple(_WORDS.split())
OTHER_VERBS = tuple(_VERBS.split())
