"""The small closed world the demo model knows: plain facts, written for this project."""

from __future__ import annotations

from typing import NamedTuple


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


ANIMALS: tuple[Animal, ...] = (
    Animal("lion", "lions", "roar", "meat", "the grasslands of Africa", 4, "cub", "mammal", "golden", 7, "lions live in family groups called prides"),
    Animal("tiger", "tigers", "growl", "meat", "the forests of Asia", 4, "cub", "mammal", "orange with black stripes", 7, "no two tigers have the same stripes"),
    Animal("elephant", "elephants", "trumpet", "grass and leaves", "the savanna", 4, "calf", "mammal", "grey", 9, "elephants greet each other with their trunks"),
    Animal("mouse", "mice", "squeak", "seeds and cheese", "small holes", 4, "pup", "mammal", "grey", 1, "mice can squeeze through a hole the size of a coin"),
    Animal("dog", "dogs", "bark", "meat and biscuits", "houses with people", 4, "puppy", "mammal", "brown, black or white", 4, "dogs can smell far better than people"),
    Animal("cat", "cats", "meow", "fish and meat", "houses with people", 4, "kitten", "mammal", "many colours", 3, "cats sleep for most of the day"),
    Animal("cow", "cows", "moo", "grass", "farms", 4, "calf", "mammal", "black and white", 7, "cows have best friends in the herd"),
    Animal("horse", "horses", "neigh", "grass and hay", "stables and meadows", 4, "foal", "mammal", "brown", 7, "horses can sleep standing up"),
    Animal("pig", "pigs", "oink", "roots and vegetables", "farms", 4, "piglet", "mammal", "pink", 5, "pigs roll in mud to stay cool"),
    Animal("sheep", "sheep", "baa", "grass", "meadows", 4, "lamb", "mammal", "white", 5, "sheep remember faces for years"),
    Animal("goat", "goats", "bleat", "leaves and grass", "mountains and farms", 4, "kid", "mammal", "white or brown", 5, "goats can climb very steep rocks"),
    Animal("duck", "ducks", "quack", "water plants and insects", "ponds", 2, "duckling", "bird", "brown or green", 3, "duck feathers keep the water out"),
    Animal("chicken", "chickens", "cluck", "grain", "farms", 2, "chick", "bird", "white or brown", 3, "chickens take baths in dust"),
    Animal("owl", "owls", "hoot", "mice", "trees", 2, "owlet", "bird", "brown", 3, "owls can turn their heads almost all the way around"),
    Animal("eagle", "eagles", "screech", "fish and small animals", "high cliffs", 2, "eaglet", "bird", "brown and white", 4, "eagles see a rabbit from very far away"),
    Animal("parrot", "parrots", "squawk", "fruit and nuts", "the rainforest", 2, "chick", "bird", "green, red and blue", 2, "parrots can copy the words of people"),
    Animal("lorikeet", "lorikeets", "chatter", "nectar and pollen", "the trees of Australia", 2, "chick", "bird", "green, blue, orange and red", 2, "lorikeets have a tongue like a little brush"),
    Animal("penguin", "penguins", "honk", "fish", "the icy coasts of the south", 2, "chick", "bird", "black and white", 4, "penguins cannot fly but swim very well"),
    Animal("swan", "swans", "hiss", "water plants", "lakes", 2, "cygnet", "bird", "white", 4, "swans often stay with one partner"),
    Animal("crow", "crows", "caw", "seeds, fruit and insects", "trees and towns", 2, "chick", "bird", "black", 3, "crows can solve puzzles"),
    Animal("frog", "frogs", "croak", "insects", "ponds", 4, "tadpole", "amphibian", "green", 2, "frogs drink through their skin"),
    Animal("snake", "snakes", "hiss", "mice and eggs", "grass and deserts", 0, "snakelet", "reptile", "green or brown", 4, "snakes smell with their tongues"),
    Animal("turtle", "turtles", "soft hiss", "water plants", "rivers and seas", 4, "hatchling", "reptile", "green", 4, "turtles carry their home on their back"),
    Animal("crocodile", "crocodiles", "bellow", "fish and meat", "warm rivers", 4, "hatchling", "reptile", "dark green", 7, "crocodiles have lived on Earth since the dinosaurs"),
    Animal("fish", "fish", "bubble", "plants and small animals", "rivers and seas", 0, "fry", "fish", "silver", 2, "fish breathe through gills"),
    Animal("shark", "sharks", "no sound", "fish", "the ocean", 0, "pup", "fish", "grey", 8, "sharks have no bones, only cartilage"),
    Animal("whale", "whales", "song", "krill and fish", "the ocean", 0, "calf", "mammal", "blue-grey", 9, "the blue whale is the largest animal of all"),
    Animal("dolphin", "dolphins", "click", "fish", "the sea", 0, "calf", "mammal", "grey", 6, "dolphins call each other by name whistles"),
    Animal("octopus", "octopuses", "no sound", "crabs", "the sea floor", 8, "hatchling", "mollusc", "red or brown", 4, "an octopus has three hearts"),
    Animal("bee", "bees", "buzz", "nectar and pollen", "hives", 6, "larva", "insect", "yellow and black", 0, "bees dance to show where flowers are"),
    Animal("ant", "ants", "no sound", "seeds and sugar", "nests in the ground", 6, "larva", "insect", "black or red", 0, "ants can carry many times their own weight"),
    Animal("butterfly", "butterflies", "no sound", "nectar", "meadows", 6, "caterpillar", "insect", "many colours", 0, "butterflies taste with their feet"),
    Animal("spider", "spiders", "no sound", "insects", "webs", 8, "spiderling", "arachnid", "brown or black", 0, "spider silk is very strong for its weight"),
    Animal("bear", "bears", "growl", "berries, fish and honey", "forests", 4, "cub", "mammal", "brown", 7, "bears sleep through much of the winter"),
    Animal("wolf", "wolves", "howl", "meat", "forests and mountains", 4, "pup", "mammal", "grey", 5, "wolves hunt together in packs"),
    Animal("fox", "foxes", "yelp", "mice and berries", "forests and fields", 4, "kit", "mammal", "red", 4, "foxes hear a mouse moving under the snow"),
    Animal("rabbit", "rabbits", "soft squeak", "grass and carrots", "burrows", 4, "kit", "mammal", "brown or white", 3, "rabbits hop for joy when they are happy"),
    Animal("squirrel", "squirrels", "chirp", "nuts", "trees", 4, "kit", "mammal", "red or grey", 2, "squirrels forget some of the nuts they bury, and trees grow"),
    Animal("hedgehog", "hedgehogs", "snuffle", "insects and slugs", "gardens", 4, "hoglet", "mammal", "brown", 2, "hedgehogs roll into a ball when they are afraid"),
    Animal("monkey", "monkeys", "chatter", "fruit", "the jungle", 4, "infant", "mammal", "brown", 4, "monkeys use their tails to keep their balance"),
    Animal("giraffe", "giraffes", "soft hum", "leaves", "the savanna", 4, "calf", "mammal", "yellow with brown spots", 9, "the giraffe is the tallest animal on land"),
    Animal("zebra", "zebras", "bark", "grass", "the savanna", 4, "foal", "mammal", "black and white", 7, "zebra stripes confuse biting flies"),
    Animal("camel", "camels", "groan", "dry plants", "the desert", 4, "calf", "mammal", "sandy brown", 8, "camels store fat in their humps"),
    Animal("kangaroo", "kangaroos", "cough", "grass", "Australia", 4, "joey", "mammal", "red-brown", 6, "kangaroos carry their young in a pouch"),
    Animal("koala", "koalas", "grunt", "eucalyptus leaves", "the trees of Australia", 4, "joey", "mammal", "grey", 3, "koalas sleep up to twenty hours a day"),
    Animal("panda", "pandas", "bleat", "bamboo", "the mountains of China", 4, "cub", "mammal", "black and white", 6, "pandas eat bamboo for most of the day"),
    Animal("bat", "bats", "high squeak", "insects", "caves", 2, "pup", "mammal", "brown or black", 1, "bats find their way with echoes"),
    Animal("snail", "snails", "no sound", "leaves", "gardens", 0, "hatchling", "mollusc", "brown", 0, "a snail can sleep for months"),
)

ADJECTIVES = (
    "brave", "small", "big", "little", "wild", "young", "old", "happy", "sad", "tiny", "giant", "clever", "lazy", "hungry", "friendly", "shy", "lonely", "funny",
    "typical", "normal", "baby", "grown", "strong", "magic", "silly", "curious", "sleepy", "lost", "kind", "proud", "famous", "real", "cute", "angry", "beautiful",
)
THING_ADJECTIVES = ("ripe", "fresh", "normal", "typical", "big", "small", "real", "clear", "new", "nice", "old", "clean", "sweet", "bright", "beautiful")
HEROES = (
    "robot", "dragon", "princess", "knight", "wizard", "witch", "king", "queen", "pirate", "child", "girl", "boy", "ghost", "giant", "fairy", "unicorn", "sailor", "astronaut", "teacher",
    "baker", "star", "cloud", "tree", "moon", "train", "boat", "snowman", "monster", "mermaid", "dinosaur", "farmer", "painter", "flower", "computer", "toy", "river", "mountain", "adapter",
)

FLYERS = frozenset({"duck", "owl", "eagle", "parrot", "lorikeet", "swan", "crow", "bee", "butterfly", "bat"})
SWIMMERS = frozenset({"duck", "penguin", "swan", "frog", "turtle", "crocodile", "fish", "shark", "whale", "dolphin", "octopus"})

# Country: capital, continent, language, a thing it is known for, the word for its people.
COUNTRIES: dict[str, tuple[str, str, str, str]] = {
    "France": ("Paris", "Europe", "French", "cheese and the Eiffel Tower"),
    "Germany": ("Berlin", "Europe", "German", "bread and castles"),
    "Spain": ("Madrid", "Europe", "Spanish", "sunny beaches and tapas"),
    "Italy": ("Rome", "Europe", "Italian", "pasta and old ruins"),
    "Portugal": ("Lisbon", "Europe", "Portuguese", "custard tarts and the sea"),
    "Ireland": ("Dublin", "Europe", "English and Irish", "green hills and music"),
    "England": ("London", "Europe", "English", "tea and red buses"),
    "Scotland": ("Edinburgh", "Europe", "English", "lochs and bagpipes"),
    "the Netherlands": ("Amsterdam", "Europe", "Dutch", "tulips and bicycles"),
    "Belgium": ("Brussels", "Europe", "Dutch, French and German", "waffles and chocolate"),
    "Austria": ("Vienna", "Europe", "German", "waltzes and mountains"),
    "Switzerland": ("Bern", "Europe", "German, French, Italian and Romansh", "chocolate and the Alps"),
    "Sweden": ("Stockholm", "Europe", "Swedish", "forests and islands"),
    "Norway": ("Oslo", "Europe", "Norwegian", "fjords and snow"),
    "Denmark": ("Copenhagen", "Europe", "Danish", "fairy tales and bicycles"),
    "Finland": ("Helsinki", "Europe", "Finnish and Swedish", "saunas and lakes"),
    "Iceland": ("Reykjavik", "Europe", "Icelandic", "volcanoes and geysers"),
    "Poland": ("Warsaw", "Europe", "Polish", "dumplings and old towns"),
    "Hungary": ("Budapest", "Europe", "Hungarian", "hot baths and paprika"),
    "Greece": ("Athens", "Europe", "Greek", "islands and old temples"),
    "Turkey": ("Ankara", "Asia and Europe", "Turkish", "bazaars and sweet tea"),
    "Ukraine": ("Kyiv", "Europe", "Ukrainian", "wheat fields and borscht"),
    "Egypt": ("Cairo", "Africa", "Arabic", "pyramids and the Nile"),
    "Morocco": ("Rabat", "Africa", "Arabic and Berber", "mint tea and markets"),
    "Kenya": ("Nairobi", "Africa", "Swahili and English", "safaris and runners"),
    "Ethiopia": ("Addis Ababa", "Africa", "Amharic", "coffee and highlands"),
    "Nigeria": ("Abuja", "Africa", "English", "music and films"),
    "Ghana": ("Accra", "Africa", "English", "cocoa and drums"),
    "India": ("New Delhi", "Asia", "Hindi and English", "spices and the Taj Mahal"),
    "China": ("Beijing", "Asia", "Chinese", "the Great Wall and tea"),
    "Japan": ("Tokyo", "Asia", "Japanese", "sushi and cherry blossoms"),
    "South Korea": ("Seoul", "Asia", "Korean", "kimchi and pop music"),
    "Thailand": ("Bangkok", "Asia", "Thai", "temples and noodles"),
    "Vietnam": ("Hanoi", "Asia", "Vietnamese", "noodle soup and rice fields"),
    "Indonesia": ("Jakarta", "Asia", "Indonesian", "thousands of islands"),
    "Nepal": ("Kathmandu", "Asia", "Nepali", "the highest mountains"),
    "Canada": ("Ottawa", "North America", "English and French", "maple syrup and lakes"),
    "the United States": ("Washington", "North America", "English", "wide roads and big cities"),
    "Mexico": ("Mexico City", "North America", "Spanish", "tacos and old pyramids"),
    "Cuba": ("Havana", "North America", "Spanish", "old cars and dancing"),
    "Brazil": ("Brasilia", "South America", "Portuguese", "the Amazon and football"),
    "Argentina": ("Buenos Aires", "South America", "Spanish", "tango and wide plains"),
    "Peru": ("Lima", "South America", "Spanish", "llamas and Machu Picchu"),
    "Chile": ("Santiago", "South America", "Spanish", "deserts and a long coast"),
    "Colombia": ("Bogota", "South America", "Spanish", "coffee and flowers"),
    "Australia": ("Canberra", "Oceania", "English", "kangaroos and coral reefs"),
    "New Zealand": ("Wellington", "Oceania", "English and Maori", "kiwis and green mountains"),
}

# Thing: its usual colour.
COLOURS_OF: dict[str, str] = {
    "banana": "yellow", "lemon": "yellow", "sunflower": "yellow", "grass": "green", "lime": "green", "cucumber": "green",
    "leaf": "green", "broccoli": "green", "sky": "blue", "ocean": "blue", "blueberry": "blue", "tomato": "red",
    "strawberry": "red", "cherry": "red", "blood": "red", "fire engine": "red", "ruby": "red", "orange": "orange",
    "carrot": "orange", "pumpkin": "orange", "snow": "white", "milk": "white", "salt": "white", "cloud": "white",
    "coal": "black", "night": "black", "tar": "black", "chocolate": "brown", "coffee": "brown", "wood": "brown",
    "soil": "brown", "flamingo": "pink", "plum": "purple", "lavender": "purple", "aubergine": "purple", "violet": "purple",
    "gold": "golden", "silver": "grey", "ash": "grey", "emerald": "green", "sand": "light brown", "honey": "golden",
    "egg yolk": "yellow", "polar bear": "white", "raspberry": "red", "spinach": "green", "fire": "orange and red",
    "sun": "yellow", "rose": "red, and sometimes white, pink or yellow", "apple": "red or green", "moon": "grey",
    "rainbow": "red, orange, yellow, green, blue, indigo and violet", "sapphire": "blue", "corn": "yellow", "rice": "white",
}
MASS_NOUNS = frozenset({
    "grass", "broccoli", "blood", "snow", "milk", "salt", "coal", "tar", "chocolate", "coffee", "wood", "soil", "lavender",
    "gold", "silver", "ash", "sand", "honey", "spinach", "fire", "corn", "rice",
})
UNIQUE_NOUNS = frozenset({"sky", "ocean", "night", "sun", "moon"})

MIXES: dict[frozenset[str], str] = {
    frozenset(("red", "yellow")): "orange", frozenset(("blue", "yellow")): "green", frozenset(("red", "blue")): "purple",
    frozenset(("red", "white")): "pink", frozenset(("black", "white")): "grey", frozenset(("red", "green")): "brown",
    frozenset(("blue", "white")): "light blue", frozenset(("orange", "blue")): "brown",
}

DEFINITIONS: dict[str, str] = {
    "ocean": "a very large body of salt water", "island": "land with water all around it",
    "mountain": "a very high piece of land", "volcano": "a mountain that can throw out hot melted rock",
    "river": "water that flows over the land to a lake or the sea", "lake": "a body of water with land all around it",
    "desert": "a dry place where little rain falls", "forest": "a large place full of trees", "bridge": "a way over a river or a road",
    "castle": "a strong old building with thick walls", "library": "a place where people borrow books", "school": "a place where people learn",
    "hospital": "a place where sick people get help", "museum": "a place that shows old or beautiful things",
    "bakery": "a shop that makes and sells bread", "farm": "a place where people grow food and keep animals",
    "garden": "a piece of land for flowers, fruit or vegetables", "market": "a place where people buy and sell things",
    "clock": "a machine that shows the time", "map": "a drawing that shows where places are", "compass": "a tool that points north",
    "telescope": "a tool that makes far things look near", "microscope": "a tool that makes tiny things look big",
    "computer": "a machine that works with numbers and words", "robot": "a machine that can do work by itself",
    "internet": "many computers all over the world that talk to each other", "language": "words that people use to understand each other",
    "music": "sounds that are put together to please the ear", "poem": "a short text with rhythm and pictures made of words",
    "story": "a tale about things that happen to someone", "dream": "pictures in your mind while you sleep", "friend": "someone you like and trust",
    "family": "people who belong together, often parents and children", "gravity": "the force that pulls things to the ground",
    "energy": "what makes things move, shine or get warm", "electricity": "energy that flows through wires", "magnet": "a thing that pulls iron",
    "atom": "a tiny part of which everything is made", "cell": "the smallest living part of a plant or an animal",
    "oxygen": "the part of the air that we need to breathe", "planet": "a large round body that goes around a star",
    "star": "a huge ball of hot gas that shines", "galaxy": "a great group of stars", "comet": "a ball of ice and dust that grows a tail near the sun",
    "eclipse": "the moment when the moon or the Earth blocks the light of the sun", "rainbow": "a bow of colours made by sun and rain",
    "thunder": "the loud sound that follows lightning", "lightning": "a big electric spark in the sky", "tornado": "a fast turning column of air",
    "fossil": "the mark or bones of something that lived very long ago", "dinosaur": "a reptile that lived millions of years ago",
    "insect": "a small animal with six legs", "mammal": "an animal that feeds its young with milk", "reptile": "an animal with dry scales, like a snake",
    "bird": "an animal with feathers and wings", "seed": "the small part from which a plant grows", "photosynthesis": "how plants make sugar from light, water and air",
    "vegetable": "a part of a plant that we eat, like a carrot", "fruit": "the sweet part of a plant that holds its seeds",
    "bicycle": "a vehicle with two wheels and pedals", "train": "a row of wagons that runs on rails", "ship": "a large boat for the sea",
    "airplane": "a machine with wings that flies", "rocket": "a machine that flies into space", "satellite": "a thing that goes around a planet",
    "democracy": "a way to rule in which people vote", "money": "what we use to pay for things", "recipe": "a text that says how to cook something",
    "alphabet": "all the letters of a language", "dictionary": "a book that explains words", "algorithm": "a list of steps that solves a problem",
    "password": "a secret word that opens something", "database": "a place where a computer keeps data in order", "battery": "a thing that stores electricity",
    "neural network": "a program with many small numbers that learns from examples", "courage": "doing the right thing even when you are afraid",
    "patience": "waiting calmly", "happiness": "the feeling that life is good", "holiday": "a day without work or school",
    "triangle": "a shape with three sides", "square": "a shape with four equal sides", "circle": "a perfectly round shape",
    "hexagon": "a shape with six sides", "cube": "a box with six equal square sides", "prime number": "a number that only one and itself divide",
}

OPPOSITES: tuple[tuple[str, str], ...] = (
    ("hot", "cold"), ("big", "small"), ("fast", "slow"), ("up", "down"), ("left", "right"), ("day", "night"), ("happy", "sad"),
    ("light", "dark"), ("old", "young"), ("new", "ancient"), ("hard", "soft"), ("wet", "dry"), ("open", "closed"), ("full", "empty"),
    ("high", "low"), ("early", "late"), ("easy", "difficult"), ("loud", "quiet"), ("rich", "poor"), ("strong", "weak"),
    ("thick", "thin"), ("wide", "narrow"), ("clean", "dirty"), ("near", "far"), ("inside", "outside"), ("first", "last"),
    ("love", "hate"), ("friend", "enemy"), ("begin", "end"), ("win", "lose"), ("push", "pull"), ("buy", "sell"), ("give", "take"),
    ("yes", "no"), ("always", "never"), ("sweet", "sour"), ("smooth", "rough"), ("brave", "cowardly"), ("long", "short"), ("north", "south"),
    ("east", "west"), ("heavy", "weightless"), ("warm", "cool"), ("good", "bad"), ("true", "false"), ("awake", "asleep"),
)

JOBS: dict[str, str] = {
    "baker": "bakes bread and cakes", "teacher": "helps people learn", "doctor": "helps sick people get well", "nurse": "cares for sick people",
    "farmer": "grows food and keeps animals", "pilot": "flies airplanes", "chef": "cooks meals in a restaurant", "gardener": "looks after plants",
    "firefighter": "puts out fires and rescues people", "carpenter": "builds things from wood", "painter": "paints walls or pictures",
    "musician": "plays music", "writer": "writes books and stories", "engineer": "designs machines and solves problems", "sailor": "works on a ship",
    "astronaut": "travels into space", "dentist": "looks after teeth", "vet": "helps sick animals", "tailor": "makes and mends clothes",
    "librarian": "looks after books", "programmer": "writes instructions for computers", "postman": "brings letters and parcels",
    "mechanic": "repairs cars and machines", "architect": "plans buildings", "actor": "plays roles on stage or in films", "judge": "decides in a court",
    "scientist": "studies how the world works", "photographer": "takes pictures", "butcher": "sells meat", "plumber": "repairs water pipes",
}

WORDS_ABROAD: dict[str, tuple[str, str, str, str]] = {  # French, Spanish, German, Italian
    "hello": ("bonjour", "hola", "hallo", "ciao"), "goodbye": ("au revoir", "adiós", "auf Wiedersehen", "arrivederci"),
    "thank you": ("merci", "gracias", "danke", "grazie"), "please": ("s'il vous plaît", "por favor", "bitte", "per favore"),
    "yes": ("oui", "sí", "ja", "sì"), "no": ("non", "no", "nein", "no"), "cat": ("chat", "gato", "Katze", "gatto"),
    "dog": ("chien", "perro", "Hund", "cane"), "bird": ("oiseau", "pájaro", "Vogel", "uccello"), "water": ("eau", "agua", "Wasser", "acqua"),
    "bread": ("pain", "pan", "Brot", "pane"), "house": ("maison", "casa", "Haus", "casa"), "sun": ("soleil", "sol", "Sonne", "sole"),
    "moon": ("lune", "luna", "Mond", "luna"), "friend": ("ami", "amigo", "Freund", "amico"), "red": ("rouge", "rojo", "rot", "rosso"),
    "blue": ("bleu", "azul", "blau", "blu"), "green": ("vert", "verde", "grün", "verde"), "book": ("livre", "libro", "Buch", "libro"),
    "love": ("amour", "amor", "Liebe", "amore"), "good morning": ("bonjour", "buenos días", "guten Morgen", "buongiorno"),
    "good night": ("bonne nuit", "buenas noches", "gute Nacht", "buonanotte"), "apple": ("pomme", "manzana", "Apfel", "mela"),
    "one": ("un", "uno", "eins", "uno"), "two": ("deux", "dos", "zwei", "due"), "three": ("trois", "tres", "drei", "tre"),
}
LANGUAGES = ("French", "Spanish", "German", "Italian")

PLANETS: dict[str, str] = {
    "Mercury": "the smallest planet and the closest to the sun", "Venus": "the hottest planet, wrapped in thick clouds",
    "Earth": "our home, the planet with oceans and life", "Mars": "the red planet, cold and dusty", "Jupiter": "the largest planet, with a great red spot",
    "Saturn": "the planet with the bright rings of ice", "Uranus": "an icy planet that lies on its side", "Neptune": "a blue and windy planet, the farthest from the sun",
}

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")
MONTH_DAYS = ("31", "28, or 29 in a leap year,", "31", "30", "31", "30", "31", "31", "30", "31", "30", "31")
SEASONS = ("winter", "winter", "spring", "spring", "spring", "summer", "summer", "summer", "autumn", "autumn", "autumn", "winter")
SEASON_FACTS = {
    "spring": "flowers open, birds build nests and the days grow longer", "summer": "the days are long and warm, and many people go swimming",
    "autumn": "leaves turn red and gold, and the air grows cool", "winter": "the days are short and cold, and in many places it snows",
}

LISTS: dict[str, tuple[str, ...]] = {
    "animals": ("cat", "dog", "lion", "elephant", "owl", "fox", "penguin", "rabbit", "horse", "whale"),
    "birds": ("owl", "eagle", "parrot", "lorikeet", "penguin", "swan", "crow", "duck"),
    "fruits": ("apple", "banana", "cherry", "orange", "grape", "pear", "mango", "plum", "peach"),
    "vegetables": ("carrot", "potato", "onion", "spinach", "cucumber", "broccoli", "pumpkin", "pea"),
    "colours": ("red", "blue", "green", "yellow", "orange", "purple", "white", "black", "pink"),
    "cities": ("Paris", "Tokyo", "Rome", "Cairo", "Lima", "Oslo", "Nairobi", "Sydney", "London"),
    "countries": ("France", "Japan", "Kenya", "Brazil", "Canada", "Norway", "India", "Peru", "Egypt"),
    "planets": ("Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"),
    "days": DAYS, "months": MONTHS, "seasons": ("spring", "summer", "autumn", "winter"),
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
    "sea animals": ("whale", "dolphin", "shark", "octopus", "turtle", "fish", "crab"), "farm animals": ("cow", "pig", "sheep", "goat", "chicken", "horse", "duck"),
    "wild animals": ("lion", "tiger", "wolf", "bear", "fox", "zebra", "giraffe"), "insects": ("bee", "ant", "butterfly", "fly", "beetle", "moth"),
    "toys": ("ball", "doll", "kite", "teddy bear", "puzzle", "toy car"), "clothes": ("shirt", "coat", "hat", "dress", "trousers", "socks", "scarf"),
    "rooms": ("kitchen", "bedroom", "bathroom", "living room", "cellar"), "numbers": ("one", "two", "three", "four", "five", "six", "seven", "eight"),
    "metals": ("iron", "gold", "silver", "copper", "tin"), "oceans": ("Pacific", "Atlantic", "Indian", "Arctic", "Southern"),
    "breakfasts": ("toast with jam", "porridge", "pancakes", "eggs", "fruit salad", "muesli"),
}

LIST_NAMES: dict[str, tuple[str, ...]] = {  # other ways to say what is to be listed
    "sea animals": ("sea animals", "animals that live in the sea", "animals in the ocean", "sea creatures", "animals from the sea"), "farm animals": ("farm animals", "animals on a farm", "animals that live on a farm"),
    "wild animals": ("wild animals", "dangerous animals", "animals in the wild", "animals in africa"), "fruits": ("fruits", "fruit", "kinds of fruit", "tasty fruits"), "colours": ("colours", "colors", "bright colours"),
    "cities": ("cities", "big cities", "famous cities", "towns"), "countries": ("countries", "countries in the world", "lands"), "instruments": ("instruments", "musical instruments"), "breakfasts": ("breakfasts", "breakfast ideas", "ideas for breakfast", "things for breakfast"),
    "animals": ("animals", "different animals", "nice animals"), "birds": ("birds", "kinds of birds", "different birds"), "vehicles": ("vehicles", "ways to travel"), "days": ("days", "days of the week", "weekdays"), "months": ("months", "months of the year"),
    "vegetables": ("vegetables", "veggies", "green things to eat"), "drinks": ("drinks", "things to drink"), "hobbies": ("hobbies", "things to do", "ideas for the weekend"), "clothes": ("clothes", "things to wear", "pieces of clothing"),
    "planets": ("planets", "planets of the solar system"), "sports": ("sports", "ball sports", "kinds of sport"), "flowers": ("flowers", "garden flowers"), "jobs": ("jobs", "professions"),
}
RHYMES: tuple[tuple[str, ...], ...] = (
    ("cat", "hat", "mat", "bat"), ("dog", "fog", "frog", "log"), ("sun", "fun", "run", "bun"), ("moon", "spoon", "soon", "tune"), ("house", "mouse", "blouse"), ("tree", "bee", "sea", "key"), ("star", "car", "far", "jar"), ("night", "light", "bright", "kite"),
    ("day", "play", "way", "stay"), ("rain", "train", "plane", "chain"), ("cake", "lake", "snake", "make"), ("bed", "red", "head", "bread"), ("blue", "shoe", "true", "new"), ("king", "ring", "sing", "wing"), ("fish", "dish", "wish"), ("book", "cook", "look", "hook"),
    ("ball", "wall", "tall", "fall"), ("fox", "box", "socks"), ("goat", "boat", "coat", "note"), ("bear", "chair", "hair", "pear"), ("snow", "go", "slow", "show"), ("heart", "art", "start", "part"), ("time", "rhyme", "climb", "lime"), ("love", "dove", "glove", "above"),
)

WHEELS = {"car": 4, "bicycle": 2, "tricycle": 3, "motorbike": 2, "bus": 6, "unicycle": 1, "train": 0, "boat": 0, "wheelbarrow": 1, "van": 4}

COUNTS: dict[str, tuple[str, int]] = {  # question core -> (sentence with {n}, number)
    "days are in a week": ("A week has {n} days", 7), "days are there in a week": ("A week has {n} days", 7),
    "months are in a year": ("A year has {n} months", 12), "weeks are in a year": ("A year has {n} weeks", 52),
    "days are in a year": ("A year has {n} days, and a leap year has one more", 365), "hours are in a day": ("A day has {n} hours", 24),
    "minutes are in an hour": ("An hour has {n} minutes", 60), "seconds are in a minute": ("A minute has {n} seconds", 60),
    "seasons are there": ("There are {n} seasons", 4), "planets are there": ("There are {n} planets around our sun", 8),
    "continents are there": ("There are {n} continents", 7), "letters are in the alphabet": ("The English alphabet has {n} letters", 26),
    "colours are in a rainbow": ("A rainbow has {n} colours", 7), "strings does a guitar have": ("A guitar has {n} strings", 6),
    "strings does a violin have": ("A violin has {n} strings", 4), "players are in a football team": ("A football team has {n} players on the field", 11),
    "sides does a triangle have": ("A triangle has {n} sides", 3), "sides does a square have": ("A square has {n} sides", 4),
    "sides does a hexagon have": ("A hexagon has {n} sides", 6), "years are in a century": ("A century has {n} years", 100),
    "years are in a decade": ("A decade has {n} years", 10), "eggs are in a dozen": ("A dozen is {n}", 12), "fingers do we have": ("We have {n} fingers", 10),
    "cents are in a euro": ("A euro has {n} cents", 100), "metres are in a kilometre": ("A kilometre has {n} metres", 1000),
    "grams are in a kilogram": ("A kilogram has {n} grams", 1000), "centimetres are in a metre": ("A metre has {n} centimetres", 100),
    "bits are in a byte": ("A byte has {n} bits", 8), "keys does a piano have": ("A piano has {n} keys", 88),
}

RECIPES: dict[str, tuple[str, ...]] = {
    "tea": ("Boil some water", "Put a tea bag into a cup", "Pour the water in and wait three minutes", "Take the bag out and enjoy"),
    "a sandwich": ("Take two slices of bread", "Spread butter on them", "Add cheese and tomato", "Close it and cut it in half"),
    "pancakes": ("Mix flour, milk and two eggs", "Heat a little butter in a pan", "Pour in a thin layer of batter", "Turn it once and serve with jam"),
    "soup": ("Chop carrots, onions and potatoes", "Fry them for a minute", "Add water and salt", "Cook for twenty minutes"),
    "a salad": ("Wash the leaves", "Cut tomatoes and cucumber", "Mix oil, lemon and salt", "Pour it over and toss"),
    "scrambled eggs": ("Beat three eggs with salt", "Melt butter in a pan", "Pour in the eggs and stir slowly", "Take them off while still soft"),
    "rice": ("Rinse one cup of rice", "Add two cups of water and salt", "Cook gently for fifteen minutes", "Rest it for five minutes"),
    "hot chocolate": ("Warm a cup of milk", "Add two spoons of cocoa", "Add one spoon of sugar", "Stir well and drink warm"),
    "lemonade": ("Squeeze two lemons", "Add two spoons of sugar", "Fill up with cold water", "Stir and add ice"),
    "pasta": ("Boil a pot of salted water", "Cook the pasta for ten minutes", "Warm some tomato sauce", "Mix and add cheese"),
    "coffee": ("Grind the beans", "Put the coffee into a filter", "Pour hot water over it slowly", "Wait until it drips through"),
    "bread": ("Mix flour, water, salt and yeast", "Knead the dough for ten minutes", "Let it rise for an hour", "Bake it until it is brown"),
}

WEATHER: dict[str, tuple[str, str]] = {  # kind -> (what it is, what to wear or do)
    "rain": ("Rain is water that falls from clouds in drops", "Take an umbrella and wear boots"),
    "snow": ("Snow is made of tiny ice crystals that fall from cold clouds", "Wear a warm coat, gloves and a hat"),
    "wind": ("Wind is air that moves from one place to another", "Wear a jacket and hold on to your hat"),
    "fog": ("Fog is a cloud that lies on the ground", "Walk slowly and wear something bright"),
    "hail": ("Hail is frozen rain that falls as balls of ice", "Stay inside until it is over"),
    "a storm": ("A storm is strong wind with rain or snow", "Stay inside and close the windows"),
    "sunshine": ("Sunshine is the light and warmth of the sun", "Wear a hat and use sun cream"),
    "a cloud": ("A cloud is made of many tiny drops of water in the air", "Take a jacket, it may get cool"),
    "frost": ("Frost is a thin layer of ice on cold ground", "Walk with care and wear gloves"),
    "a heatwave": ("A heatwave is many very hot days in a row", "Drink water and stay in the shade"),
}
WEATHER_WORDS = {  # how people say that it is so
    "rain": ("it rains", "it is raining", "it is rainy"), "snow": ("it snows", "it is snowing", "it is snowy"),
    "wind": ("it is windy", "the wind is strong"), "fog": ("it is foggy", "there is fog"), "hail": ("it hails", "it is hailing"),
    "a storm": ("there is a storm", "it is stormy"), "sunshine": ("it is sunny", "the sun is shining"), "a cloud": ("it is cloudy",),
    "frost": ("it is freezing", "there is frost", "it is icy"), "a heatwave": ("it is very hot", "it is hot"),
}

JOKES: tuple[tuple[str, str], ...] = (
    ("Why did the bicycle fall over?", "Because it was two tired!"), ("What do you call a bear with no teeth?", "A gummy bear!"),
    ("Why did the bird join the orchestra?", "It already had the beak for the flute!"), ("What is a computer's favourite snack?", "Microchips!"),
    ("Why was the maths book sad?", "It had too many problems!"), ("What do cows read in the morning?", "The moos paper!"),
    ("Why did the adapter feel light?", "It only carried a low rank!"), ("What do you call a sleeping dinosaur?", "A dino-snore!"),
    ("Why do bees hum?", "They forgot the words!"), ("What did the ocean say to the beach?", "Nothing, it just waved!"),
    ("Why did the tomato turn red?", "It saw the salad dressing!"), ("What is an owl's favourite subject?", "Owl-gebra!"),
    ("Why did the cookie go to the doctor?", "It felt crumbly!"), ("What do clouds wear under their coats?", "Thunderwear!"),
    ("Why did the GPU go to the beach?", "It needed to cool down!"), ("How does the moon cut its hair?", "Eclipse it!"),
    ("What do you get when you cross a fish and an elephant?", "Swimming trunks!"), ("Why can't a leopard hide?", "It is always spotted!"),
)

FUN_FACTS: tuple[str, ...] = (
    "Honey can stay good for a very long time.", "An octopus has three hearts.", "Bananas are berries, but strawberries are not.",
    "A day on Venus is longer than its year.", "Lorikeets have a tongue like a little brush.", "The Eiffel Tower grows a little in summer.",
    "Sound travels faster in water than in air.", "Hot water and cold water make different sounds when you pour them.", "Bamboo can grow almost a metre in one day.",
    "A group of lions is called a pride.", "Light from the sun needs about eight minutes to reach us.", "Butterflies taste with their feet.",
    "Saturn would float if you found a bath that was big enough.", "Your bones are stronger than they look.", "Trees talk to each other through tiny fungi in the soil.",
)

ADVICE: dict[str, tuple[str, tuple[str, ...]]] = {
    "sad": ("I am sorry to hear that. A walk, some music or a talk with a friend can help.", ("i am sad", "i feel sad", "i am feeling down", "i had a bad day", "i am lonely", "i feel blue")),
    "tired": ("Then rest a little. A glass of water, fresh air and early sleep do wonders.", ("i am tired", "i am so sleepy", "i feel exhausted", "i cannot sleep", "i did not sleep well")),
    "bored": ("Let us do something! Ask me for a story, a joke or a riddle, or go and draw something.", ("i am bored", "i am so bored", "what should i do today", "i have nothing to do", "what can i do this weekend")),
    "happy": ("That is wonderful! Share your good mood with someone today.", ("i am happy", "i feel great", "i had a good day", "i am so excited", "i am in a good mood", "life is good")),
    "hungry": ("How about toast with cheese, a fruit salad or a warm soup?", ("i am hungry", "what should i eat", "what should i cook", "what is for dinner", "what should i have for lunch", "i am starving")),
    "thirsty": ("A glass of cold water or a cup of tea is always a good idea.", ("i am thirsty", "what should i drink", "i need a drink")),
    "angry": ("Take three slow breaths first. Then say calmly what bothers you.", ("i am angry", "i am so mad", "i am upset", "i am annoyed")),
    "nervous": ("Breathe slowly and take one small step at a time. You can do it.", ("i am nervous", "i am afraid", "i am scared", "i have an exam tomorrow", "i am worried", "i am stressed")),
    "sick": ("I hope you feel better soon. Rest, drink a lot and ask a doctor if it does not get better.", ("i am sick", "i feel ill", "i have a cold", "my head hurts", "i have a headache", "i have a fever")),
    "birthday": ("Happy birthday! I wish you a year full of good days.", ("it is my birthday", "today is my birthday", "i turned older today", "it's my birthday")),
    "learning": ("Learn a little every day, explain it in your own words and rest well.", ("how do i learn better", "how can i study", "any tips for studying", "how do i get better at school")),
    "reading": ("Try an adventure story, a book about animals or a book of poems.", ("what should i read", "can you recommend a book", "recommend me a book", "any book tips")),
}

RIDDLES: tuple[tuple[str, str], ...] = (
    ("What has keys but opens no door?", "A piano."), ("What has hands but cannot clap?", "A clock."), ("What gets wetter the more it dries?", "A towel."),
    ("What has a neck but no head?", "A bottle."), ("What has many teeth but cannot bite?", "A comb."), ("What goes up but never comes down?", "Your age."),
    ("What has one eye but cannot see?", "A needle."), ("What runs but has no legs?", "A river."),
)

CODE: dict[str, tuple[str, ...]] = {
    "prints hello world": ('print("Hello, world!")',), "adds two numbers": ("def add(a, b):", "    return a + b"),
    "says if a number is even": ("def is_even(n):", "    return n % 2 == 0"), "reverses a text": ("def reverse(text):", "    return text[::-1]"),
    "sums a list": ("def total(numbers):", "    return sum(numbers)"), "finds the largest number": ("def largest(numbers):", "    return max(numbers)"),
    "counts to ten": ("for n in range(1, 11):", "    print(n)"), "greets someone by name": ("def greet(name):", '    return f"Hello, {name}!"'),
    "multiplies two numbers": ("def multiply(a, b):", "    return a * b"), "squares a number": ("def square(n):", "    return n * n"),
}

NAMES = (
    "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Hugo", "Ida", "Jonas", "Kim", "Leo", "Mia", "Noah", "Olga", "Paul", "Rosa", "Sam", "Tara",
    "Umar", "Vera", "Will", "Yara", "Zoe", "Aisha", "Bruno", "Chen", "Diego", "Elif", "Fatima", "Goran", "Hana", "Ivan", "Jin", "Kofi", "Lena", "Marco",
    "Nina", "Omar", "Priya", "Quinn", "Ravi", "Sofia", "Tom", "Lucy", "Max", "Alice", "Bob", "Eve", "John", "Mary", "Peter", "Sarah", "Alex", "Maria",
)

# Ordinary words that mean nothing special here; questions out of the world are made of them.
OTHER_WORDS = tuple("""
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
""".split())
OTHER_VERBS = tuple("""
accept achieve admire adopt advise afford analyse apply arrange arrest assemble attach avoid bake ban bet bend borrow break build burn calculate cancel
catch charge chase choose claim climb collect compare compete compile complain compose configure connect convert copy crack create cure cut debug decorate
defeat delete deliver deploy describe design destroy develop divide download drive earn edit employ escape evaluate examine exchange expand explode export
fasten fight file fix fold forecast format generate hack hang heal hide hire hunt improve increase install invest invent join judge jump kill launch lend
lift load lock manage measure melt merge mount negotiate obtain operate optimise order paint park patch pay plan plant polish predict prepare prevent
print produce program protect prove publish pump purchase raise record recover recycle reduce refuse register remove renovate rent repair replace report
rescue restart restore retire review rob sail scan schedule score seal search secure sew shoot solve sort split steal stop store study sue summarise
surf swap tie train transfer translate trap treat upgrade use vote wash weld win wrap
""".split())
