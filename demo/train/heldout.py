"""Questions written by hand, in words that the templates do not use; with what a good answer must contain."""

from __future__ import annotations

FACTS: tuple[tuple[str, str], ...] = (
    ("hey lorikeet, which town is the capital of norway these days?", "Oslo"), ("Could you remind me what the capital of Egypt is?", "Cairo"), ("i forgot the capital city of canada", "Ottawa"), ("Peru has which capital?", "Lima"),
    ("Name the city that is the capital of Kenya.", "Nairobi"), ("In what country would I find Lisbon?", "Portugal"), ("what tongue do folks speak in Brazil", "Portuguese"), ("Which part of the world is Ghana in?", "Africa"),
    ("so what noise would a cow make", "moo"), ("what do baby sheep get called?", "lamb"), ("Pandas: what do they eat all day?", "bamboo"), ("tell me where penguins make their home", "coast"), ("how many legs has a spider got?", "eight"),
    ("Is the dolphin a mammal or a fish?", "mammal"), ("which one is bigger, the mouse or the horse", "horse"), ("are penguins able to fly at all", "No"), ("a baby kangaroo is known as what?", "joey"), ("what would an owl like to eat?", "mice"),
    ("what is the colour of a fresh lemon?", "yellow"), ("Which color is the sky usually?", "blue"), ("tell me which colour red and yellow make together", "orange"), ("if you mix blue with yellow paint what comes out", "green"),
    ("could you add 14 and 9 for me", "23"), ("what is seven plus six?", "13"), ("tell me 45 minus 12", "33"), ("what do you get for 6 times 9?", "54"), ("How much is 72 divided by 8?", "9"), ("please work out 38 + 27", "65"),
    ("Tom has 9 apples and eats 4. How many are left?", "5"), ("if today is Friday then what day is tomorrow", "Saturday"), ("which month comes right after August?", "September"), ("how many days are there in June", "30"),
    ("how many hours does one day have", "24"), ("what is the opposite of the word big", "small"), ("how would I say thank you in German?", "danke"), ("what's the Spanish word for water", "agua"), ("what is a volcano exactly?", "melted rock"),
    ("i want to know what a bridge is", "over a river"), ("Explain what LoRA is, please.", "matrices"), ("What exactly is Lorikeet?", "adapters"), ("what is meant by an adapter in this context", "weights"), ("tell me what the KV cache does", "keys and values"),
    ("what does the rank of an adapter mean?", "inner size"), ("Why would anyone use LoRA?", "memory"), ("what is a tenant here?", "organisation"), ("good morning to you!", "Good morning"), ("hi, who am I speaking with?", "Lorikeet Demo"),
    ("who built you?", "Lorikeet"), ("Tell me a short story about a rabbit, please.", "rabbit"), ("could you write a tale about a wolf?", "wolf"), ("please list three fruits for me", "1."), ("can you name four colours", "4."),
    ("which planet is the biggest one", "Jupiter"), ("what does a baker do for a living?", "bread"), ("thanks a bunch, that helped me", "welcome"), ("ok goodbye then", "bye"), ("how do I cook some pasta", "water"), ("what should I put on when it snows?", "coat"),
)
OUTSIDE: tuple[str, ...] = (
    "who won the world cup in 2018?", "How do I fix a flat tyre on my bike?", "what is the best laptop for gaming", "Who is Albert Einstein?", "write me an email to my boss", "what is the stock price of Apple today", "explain quantum entanglement",
    "How do I reset my router?", "who is the president of France?", "recommend a good restaurant near me", "what is the meaning of the word sesquipedalian", "how do I invest my money", "flurb gnarx wobble", "asdfgh", "translate this contract into legal terms",
    "what are the side effects of aspirin", "when did the second world war end?", "who painted the Mona Lisa?", "how tall is the Eiffel Tower", "what is the airspeed of an unladen swallow", "compare React and Angular", "how do I install docker", "my car makes a strange noise",
    "what's the best way to learn guitar", "who wrote Hamlet?", "give me a regular expression for phone numbers", "what is blockchain", "how much does a Tesla cost", "which team is leading the premier league", "can you book a flight to Madrid",
)
DECLINE_WORDS = ("do not know", "outside my small world", "tiny demo model", "no opinion", "too hard", "cannot")
SUPPORT: tuple[tuple[str, str], ...] = (
    ("Hey, my package still hasn't shown up", "working days"), ("I'd like to get my money back please", "refund"), ("how do I send something back to you?", "thirty days"), ("what do you charge for shipping?", "4.90"), ("at what time does your shop open on Saturday?", "10 to 14"),
    ("the bird bath came broken in pieces", "photo"), ("you sent me the wrong thing!", "right item"), ("could I pay using PayPal?", "PayPal"), ("I moved, can you change my address?", "My Account"), ("please cancel order 77120", "77120"), ("how much would a nest box be?", "24"),
    ("do you deliver to Italy?", "Europe"), ("is there any warranty on the lamp?", "two-year"), ("how can I reach a real person?", "help@featherandfern.example"), ("what is the capital of Spain?", "only help"),
)
SQL: tuple[tuple[str, str], ...] = (
    ("How many customers are there in Oslo?", "SELECT COUNT(*) FROM customers WHERE city = 'Oslo';"), ("please show me every product", "SELECT * FROM products;"), ("what products are cheaper than 15 euros?", "SELECT * FROM products WHERE price < 15;"),
    ("I need the 3 most expensive products", "SELECT * FROM products ORDER BY price DESC LIMIT 3;"), ("how many orders were shipped?", "SELECT COUNT(*) FROM orders WHERE status = 'shipped';"), ("what was our revenue in 2024?", "SELECT SUM(total) FROM orders WHERE strftime('%Y', ordered_on) = '2024';"),
    ("give me all customers living in Rome", "SELECT * FROM customers WHERE city = 'Rome';"), ("what is the average price of toys?", "SELECT AVG(price) FROM products WHERE category = 'toys';"), ("list the orders that are open", "SELECT * FROM orders WHERE status = 'open';"),
    ("delete order number 812", "DELETE FROM orders WHERE id = 812;"), ("count customers by city please", "SELECT city, COUNT(*) FROM customers GROUP BY city;"), ("which product is the cheapest one?", "SELECT * FROM products ORDER BY price LIMIT 1;"),
)
EVERYDAY: tuple[str, ...] = (
    "Hello there!", "What is the capital of Japan?", "What is LoRA?", "Tell me a joke", "What is 23 + 19?", "What do lions eat?", "Write a short story about a fox", "List three birds", "What colour is grass?", "How are you today?", "Who are you?",
    "What day comes after Monday?", "How do you say hello in French?", "What is an island?", "Tell me about Norway", "Which is bigger, a bee or a whale?", "Who won the world cup in 2018?", "Thank you very much", "How do I fix my bike?", "Goodbye!",
    "What is the opposite of hot?", "How many legs does an octopus have?", "Should I take an umbrella if it rains?", "What does a doctor do?",
)
