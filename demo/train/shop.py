"""Two invented businesses: the garden shop of the support agent, and the database of the SQL writer."""

from __future__ import annotations

import random
from typing import NamedTuple

from demo.train import world
from demo.train.grammar import capital, one
from demo.train.skills.strangers import pseudo_word
from demo.train.skills.turn import Turn

SHOP = "Feather & Fern"
SIGNATURE = f"Kind regards, the {SHOP} team"

PRODUCTS: dict[str, tuple[int, str]] = {  # name -> price in euros, one sentence
    "bird feeder": (19, "It holds one kilogram of seeds and hangs from any branch"),
    "nest box": (24, "It is made of oak and fits small birds"),
    "bird bath": (39, "It is made of stone and stands on three feet"),
    "seed mix": (8, "The bag holds two kilograms for all garden birds"),
    "fat balls": (6, "The box holds twenty balls for the winter"),
    "watering can": (22, "It holds nine litres and comes in green or blue"),
    "garden gloves": (12, "They come in the sizes S, M and L"),
    "pruning shears": (29, "They have a steel blade and a safety lock"),
    "plant pot": (14, "It is made of clay and comes in three sizes"),
    "rain barrel": (79, "It holds two hundred litres and has a tap"),
    "hedgehog house": (45, "It keeps hedgehogs warm through the winter"),
    "garden lamp": (34, "It works with sunlight and lasts eight hours"),
}


class Intent(NamedTuple):
    """What a customer may want: how they ask, and what the shop says."""

    asks: tuple[str, ...]
    replies: tuple[str, ...]


INTENTS: dict[str, Intent] = {
    "hello": Intent(
        (
            "hello",
            "hi",
            "hey",
            "good (morning|evening|afternoon|day)",
            "hi there",
            "hello, can you help me?",
            "i need help",
            "help",
            "hi, i have a question",
            "is anyone there?",
            "hello there",
            "can i talk to someone?",
            "i have a problem",
            "what's up?",
        ),
        (
            "Hello and welcome to {shop}! How can I help you with your order today?",
            "Welcome to {shop}! I can help with orders, delivery, returns and refunds.",
        ),
    ),
    "who": Intent(
        (
            "who are you?",
            "what is this?",
            "are you a (bot|robot|human)?",
            "what can you do?",
            "what is your name?",
            "what is feather and fern?",
            "what do you sell?",
            "what kind of shop is this?",
            "which products do you have?",
            "tell me about your shop",
            "what can i buy here?",
        ),
        ("I am the helper of {shop}. We sell bird feeders, nest boxes, plant pots and garden tools.",),
    ),
    "track": Intent(
        (
            "where is my order( {n}|)?",
            "where is my (parcel|package|delivery)?",
            "track (my order|order {n}|my parcel)",
            "when will my order( {n}|) arrive?",
            "i (want|would like) to track order {n}",
            "has my order( {n}|) been sent?",
            "what is the status of (my order|order {n})?",
            "my order( {n}|) has not arrived",
            "my parcel is late",
            "order {n}?",
            "i am still waiting for (my order|order {n}|my parcel)",
            "when do i get my (parcel|order)?",
            "can you check order {n}?",
            "did you ship my order( {n}|)?",
            "my package is lost",
            "it has been a week and nothing came",
        ),
        (
            "I am sorry for the wait. Orders arrive within two to four working days. You can follow {order} under My Orders.",
            "Thank you for asking. Please open My Orders to see where {order} is. Delivery takes two to four working days.",
        ),
    ),
    "return": Intent(
        (
            "how (do|can) i return (something|an item|this|my order|the {p})?",
            "i want to return (my order|the {p}|this|an item|order {n})",
            "can i send (it|this|the {p}) back?",
            "what is your return policy?",
            "returns",
            "can i return a used {p}?",
            "i do not like the {p}",
            "how long do i have to return an item?",
            "i (bought|ordered) the wrong {p}",
            "the {p} does not fit",
            "i changed my mind",
            "where do i send returns?",
            "is the return free?",
            "how do returns work?",
        ),
        (
            "You can return any item within thirty days. Print the free label under My Orders and bring the parcel to any post office.",
        ),
    ),
    "refund": Intent(
        (
            "(when|how) do i get my money back?",
            "i want a refund",
            "i want my money back",
            "how long does a refund take?",
            "refund( for order {n}|)",
            "where is my refund?",
            "can i get a refund( for the {p}|)?",
            "refund please",
            "when will i be refunded?",
            "i did not get my refund",
            "refund policy",
            "give me my money back",
        ),
        ("We pay refunds within five working days after your return arrives, the same way you paid.",),
    ),
    "shipping": Intent(
        (
            "how much is (shipping|delivery)?",
            "what (does|do) (shipping|delivery) cost?",
            "shipping costs",
            "is (shipping|delivery) free?",
            "delivery fee?",
            "how long does (shipping|delivery) take?",
            "how fast do you (ship|deliver)?",
            "what are the shipping costs?",
            "do i have to pay for delivery?",
            "do you offer express (shipping|delivery)?",
            "how much do you charge for delivery?",
        ),
        ("Delivery costs 4.90 euros and takes two to four working days. It is free for orders over 40 euros.",),
    ),
    "abroad": Intent(
        (
            "do you (ship|deliver|send) (to|in) {c}?",
            "can you (ship|deliver) to {c}?",
            "shipping to {c}",
            "do you ship (abroad|worldwide|internationally)?",
            "i live in {c}, can you deliver?",
            "which countries do you ship to?",
        ),
        ("We deliver to all countries of Europe. Delivery outside Europe is not possible yet, I am sorry.",),
    ),
    "hours": Intent(
        (
            "what are your (opening hours|hours)?",
            "when are you open?",
            "opening hours",
            "are you open on (sunday|saturday|monday|weekends)?",
            "when do you (open|close)?",
            "what time do you (open|close)?",
            "is the shop open (today|now|tomorrow)?",
            "can i visit your shop?",
            "business hours?",
            "until when are you open?",
        ),
        ("We are open Monday to Friday from 9 to 18 and Saturday from 10 to 14. On Sunday we are closed.",),
    ),
    "contact": Intent(
        (
            "how (can|do) i (contact|reach|call) you?",
            "what is your (phone number|email|address)?",
            "i want to (speak|talk) to a (human|person|manager)",
            "can i call you?",
            "contact",
            "give me a (human|person)",
            "where is your shop?",
            "who can i write to?",
            "customer service",
            "i want to speak to someone",
        ),
        ("You can write to help@featherandfern.example. A person answers within one working day.",),
    ),
    "cancel": Intent(
        (
            "(cancel|please cancel) my order",
            "i want to cancel (my order|order {n})",
            "can i cancel (my order|order {n})?",
            "how do i cancel( an order| my order|)?",
            "i do not want (the {p}|my order) any more",
            "stop my order",
            "cancel order {n}",
            "i ordered by mistake",
        ),
        ("You can cancel {order} under My Orders until it is packed. After that, please use the free return.",),
    ),
    "damaged": Intent(
        (
            "my (parcel|order|{p}) (is|arrived|came) (broken|damaged)",
            "the {p} is broken",
            "the {p} arrived broken",
            "my {p} does not work",
            "i got a (broken|damaged) {p}",
            "there is a crack in my {p}",
            "the {p} stopped working",
            "something in my order is broken",
            "i received a damaged item",
            "my {p} broke",
            "faulty {p}",
            "the {p} is defective",
            "(my|the) {p} (arrived|came) with a (hole|crack|scratch|dent)( in it|)",
            "there is a (hole|scratch|dent) in (my|the) {p}",
            "(my|the) {p} (leaks|fell apart|does not turn on|is cracked|is ripped)",
            "the {p} has a (hole|crack|scratch)",
        ),
        ("I am very sorry about that! Please send us a photo under My Orders and we will send a new one at no cost.",),
    ),
    "wrong": Intent(
        (
            "i (got|received) the wrong (item|product|{p})",
            "you sent me the wrong (item|{p}|thing)",
            "this is not what i ordered",
            "the colour is wrong",
            "i got someone else's order",
            "i got a {p} but i ordered a {q}",
            "wrong item",
            "an item is missing",
            "the {p} is missing( from my order|)",
            "my order is incomplete",
        ),
        ("I am sorry for the mix-up! Keep what you got; we will send the right item today at no cost.",),
    ),
    "pay": Intent(
        (
            "how can i pay?",
            "which payment methods do you (accept|take)?",
            "can i pay (with|by) (card|paypal|invoice|cash|credit card)?",
            "do you take (paypal|cards|cash|credit cards|bitcoin)?",
            "payment methods",
            "is it safe to pay here?",
            "my payment (failed|did not work|was declined)",
            "i was charged twice",
            "payment problem",
        ),
        (
            "You can pay by card, PayPal or invoice. If a payment fails, nothing is charged and you can simply try again.",
        ),
    ),
    "address": Intent(
        (
            "(how do|can) i change my (address|delivery address)?",
            "i moved",
            "my address is wrong",
            "i gave the wrong address",
            "change the address of order {n}",
            "send it to another address",
            "please ship to a different address",
            "i want to change my address",
            "i typed the wrong street",
        ),
        (
            "Please change the address under My Account before the order is packed. After that, we cannot redirect the parcel.",
        ),
    ),
    "voucher": Intent(
        (
            "do you (have|sell) gift cards?",
            "how do i use a (voucher|gift card|discount code|coupon)?",
            "my (voucher|code|coupon) does not work",
            "is there a discount?",
            "can i get a discount?",
            "do you have a sale?",
            "discount code",
            "gift card",
            "any coupons?",
            "is there a student discount?",
        ),
        (
            "Enter your code at the checkout. Gift cards are valid for three years, and our newsletter brings a ten percent welcome code.",
        ),
    ),
    "warranty": Intent(
        (
            "(is there|do you give|what is) (a|the) warranty( on the {p}|)?",
            "how long is the (warranty|guarantee)?",
            "warranty",
            "is my {p} still under warranty?",
            "do you repair {p}s?",
            "guarantee?",
        ),
        ("All our products come with a two-year warranty. Within that time we repair or replace them at no cost.",),
    ),
    "account": Intent(
        (
            "i forgot my password",
            "i cannot log in",
            "how do i (delete|close|open|make) (my|an) account?",
            "reset my password",
            "i (want|need) to change my email",
            "login problem",
            "can i order without an account?",
            "how do i create an account?",
            "unsubscribe me from the newsletter",
        ),
        (
            "Use the link under Log In to reset your password. In My Account you can change or delete your data at any time.",
        ),
    ),
    "invoice": Intent(
        (
            "i need (an invoice|a receipt|a bill)",
            "can i get an invoice( for order {n}|)?",
            "where is my invoice?",
            "send me the (invoice|receipt)( for order {n}|)",
            "invoice",
            "i lost my receipt",
        ),
        ("You find the invoice for {order} under My Orders, ready to download.",),
    ),
    "angry": Intent(
        (
            "this is (terrible|awful|unacceptable|a joke)",
            "i am (angry|very unhappy|disappointed|upset)",
            "you are (useless|terrible|bad)",
            "worst shop ever",
            "i want to complain",
            "complaint",
            "your service is (bad|terrible|slow)",
            "(your|the) (driver|delivery man|delivery guy|staff|postman) was (rude|unfriendly|late)",
            "i am not (happy|satisfied)",
            "i have been waiting for (days|weeks|hours)",
            "nobody (answers|helps me|writes back)",
            "you never answer",
            "i will never buy here again",
        ),
        (
            "I am truly sorry that we let you down. Please tell me your order number and what went wrong, and I will put it right.",
        ),
    ),
    "thanks": Intent(
        (
            "thanks",
            "thank you( very much|)",
            "great, thanks",
            "that helped",
            "perfect",
            "ok",
            "ok thanks",
            "good",
            "thanks for the help",
            "nice",
            "cool",
            "alright",
        ),
        ("You are very welcome! Is there anything else I can do for you?",),
    ),
    "bye": Intent(
        ("bye", "goodbye", "see you", "that is all", "no, that is all", "nothing else", "no thanks", "have a nice day"),
        ("Thank you for visiting {shop}. Have a lovely day in the garden!",),
    ),
}
_PRODUCT_ASKS: dict[str, tuple[tuple[str, ...], str]] = {
    "price": (
        (
            "how much is the {p}?",
            "what does the {p} cost?",
            "price of the {p}",
            "{p} price",
            "how much does {a} cost?",
            "how expensive is the {p}?",
            "how much for the {p}?",
        ),
        "The {p} costs {e} euros. Delivery is free for orders over 40 euros.",
    ),
    "about": (
        (
            "tell me about the {p}",
            "do you (have|sell) {a}?",
            "do you (have|sell|offer) {p}s?",
            "which {p}s do you have?",
            "show me your {p}s",
            "i would like {a}",
            "can you recommend {a}?",
            "i am looking for {a}",
            "what is the {p} like?",
            "i want to buy {a}",
            "{p}",
            "describe the {p}",
            "is the {p} good?",
            "i need {a}",
            "can i order {a}?",
        ),
        "Yes, we have the {p} for {e} euros. {d}.",
    ),
    "stock": (
        (
            "is the {p} in stock?",
            "is the {p} available?",
            "do you still have the {p}?",
            "when is the {p} back in stock?",
            "are {p}s available?",
        ),
        "Yes, the {p} is in stock and ships within one working day.",
    ),
}
_ASIDE = "I can only help with {shop}: orders, delivery, returns, refunds and our products."


def _signed(text: str) -> str:
    return f"{text}\n\n{SIGNATURE}"


def _support_turn(topic: str, question: str, text: str) -> Turn:
    return Turn(f"support {topic}", question, _signed(text), text, {"answer": text}, topic)


def support(rng: random.Random) -> Turn:
    """A customer's question and the signed reply of the shop."""
    product, other = rng.sample(tuple(PRODUCTS), 2)
    price, text = PRODUCTS[product]
    if rng.random() < 0.2:
        ask = rng.choice(tuple(_PRODUCT_ASKS))
        asks, reply = _PRODUCT_ASKS[ask]
        plural = product in ("fat balls", "garden gloves", "pruning shears")
        noun = product if plural else ("a " + product)
        reply = reply.format(p=product, e=price, d=text)
        if plural:
            reply = reply.replace(" costs ", " cost ").replace(" is in stock and ships", " are in stock and ship")
        return _support_turn(ask, one(asks, rng, p=product, a=noun).replace("ss ", "s ").replace("ss?", "s?"), reply)
    key = rng.choices(tuple(INTENTS), [3 if k in ("track", "return", "refund", "hello") else 1.5 for k in INTENTS])[0]
    intent = INTENTS[key]
    number = rng.randint(1000, 99999)
    question = one(
        intent.asks,
        rng,
        n=rng.choice((number, number, f"#{number}")),
        p=product,
        q=other,
        c=rng.choice(tuple(world.COUNTRIES)),
    )
    order = f"order {number}" if str(number) in question else "your order"
    return _support_turn(key, question, rng.choice(intent.replies).format(shop=SHOP, order=order))


def aside(question: str) -> Turn:
    """The shop's polite no to a question that has nothing to do with it."""
    return _support_turn("aside", question, _ASIDE.format(shop=SHOP))


# ---------------------------------------------------------------------------------------------------------------

SCHEMA = """\
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT, email TEXT, joined DATE);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, category TEXT, price REAL, stock INTEGER);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, product_id INTEGER, quantity INTEGER, total REAL, status TEXT, ordered_on DATE);
"""
NO_SQL = "-- I only know the tables customers, products and orders."
_STATUSES = ("open", "paid", "shipped", "cancelled", "returned", "late")
_CATEGORIES = ("books", "toys", "tools", "garden", "kitchen", "sports", "music", "food", "clothes", "shoes")
_JOIN_C = "FROM orders JOIN customers ON customers.id = orders.customer_id"
_JOIN_P = "FROM orders JOIN products ON products.id = orders.product_id"

_SQL: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        (
            "how many customers (do we have|are there|have we got)?",
            "count( all|) customers",
            "number of customers",
            "customer count",
            "how many customers exist?",
        ),
        "SELECT COUNT(*) FROM customers;",
    ),
    (
        ("how many products (do we have|are there|do we sell)?", "count( all|) products", "number of products"),
        "SELECT COUNT(*) FROM products;",
    ),
    (
        (
            "how many orders (do we have|are there|were made)?",
            "count( all|) orders",
            "number of orders",
            "total number of orders",
        ),
        "SELECT COUNT(*) FROM orders;",
    ),
    (
        (
            "(show|list|give me|select|get)( me|) all customers",
            "show me (the|every) (customers|customer)",
            "all customers",
            "who are our customers?",
            "list the customers",
        ),
        "SELECT * FROM customers;",
    ),
    (
        (
            "(show|list|give me|select|get)( me|) all products",
            "all products",
            "what do we sell?",
            "list the products",
            "show (the|every) (products|product)",
        ),
        "SELECT * FROM products;",
    ),
    (
        (
            "(show|list|give me|select|get)( me|) all orders",
            "all orders",
            "list the orders",
            "show (the|every) (orders|order)",
        ),
        "SELECT * FROM orders;",
    ),
    (
        (
            "how many customers (live|are) in {city}?",
            "count( the|) customers in {city}",
            "how many (people|clients|users) (are in|live in|are from) {city}?",
            "number of customers (in|from) {city}",
            "how many customers (come from|do we have in) {city}?",
        ),
        "SELECT COUNT(*) FROM customers WHERE city = '{city}';",
    ),
    (
        (
            "(show|list|find|get)( me|)( all|) customers (in|from|who live in) {city}",
            "which customers (live in|are from|come from) {city}?",
            "(give|get|fetch) me( all|) (people|customers|clients) (in|from|of) {city}",
            "people (in|from) {city}",
            "clients in {city}",
            "who lives in {city}?",
            "customers in {city}",
            "all customers from {city}",
        ),
        "SELECT * FROM customers WHERE city = '{city}';",
    ),
    (
        (
            "(show|list|give me)( the|) names of( the|) customers (in|from) {city}",
            "names of customers in {city}",
            "what are the names of customers in {city}?",
        ),
        "SELECT name FROM customers WHERE city = '{city}';",
    ),
    (
        (
            "(show|list|give me)( the|) (emails|email addresses) of( all|) customers",
            "all( customer|) email addresses",
            "what are the emails of our customers?",
            "emails of customers",
        ),
        "SELECT email FROM customers;",
    ),
    (
        (
            "what is the email( address|) of {name}?",
            "email of {name}",
            "find the email of {name}",
            "show {name}'s email",
            "which email does {name} have?",
        ),
        "SELECT email FROM customers WHERE name = '{name}';",
    ),
    (
        ("where does {name} live?", "in which city does {name} live?", "city of {name}", "which city is {name} from?"),
        "SELECT city FROM customers WHERE name = '{name}';",
    ),
    (
        (
            "find( the|) customer {name}",
            "show( me|)( the|) customer {name}",
            "who is {name}?",
            "is there a customer (called|named) {name}?",
            "customers (called|named) {name}",
        ),
        "SELECT * FROM customers WHERE name = '{name}';",
    ),
    (
        (
            "which customers joined (in|during) {year}?",
            "(show|list) customers who joined in {year}",
            "customers from {year}",
            "who joined in {year}?",
        ),
        "SELECT * FROM customers WHERE strftime('%Y', joined) = '{year}';",
    ),
    (
        (
            "how many customers joined in {year}?",
            "count customers who joined in {year}",
            "number of new customers in {year}",
        ),
        "SELECT COUNT(*) FROM customers WHERE strftime('%Y', joined) = '{year}';",
    ),
    (
        (
            "how many customers( do we have|) (per|by|in each|for each) city?",
            "count customers (per|by) city",
            "customers (per|by) city",
            "number of customers per city",
        ),
        "SELECT city, COUNT(*) FROM customers GROUP BY city;",
    ),
    (
        ("which city has the most customers?", "city with( the|) most customers", "where do most customers live?"),
        "SELECT city, COUNT(*) AS n FROM customers GROUP BY city ORDER BY n DESC LIMIT 1;",
    ),
    (
        (
            "(which|what) cities do( our|) customers (live in|come from)?",
            "(list|show)( all| the|) cities",
            "list the different cities",
        ),
        "SELECT DISTINCT city FROM customers;",
    ),
    (
        (
            "(show|list)( the|) (newest|latest|last) {n} customers",
            "(newest|latest) {n} customers",
            "the last {n} customers who joined",
        ),
        "SELECT * FROM customers ORDER BY joined DESC LIMIT {n};",
    ),
    (
        (
            "(which|what) products cost (more than|over|above) {price}?",
            "(show|list|find)( all|) products (over|above|more expensive than|that cost more than) {price}( euros|)",
            "products over {price}",
            "products (with a|) price (above|over) {price}",
        ),
        "SELECT * FROM products WHERE price > {price};",
    ),
    (
        (
            "(which|what) products cost (less than|under|below) {price}?",
            "(show|list|find)( all|) products (under|below|cheaper than|that cost less than) {price}( euros|)",
            "products under {price}",
            "products (with a|) price (below|under) {price}",
        ),
        "SELECT * FROM products WHERE price < {price};",
    ),
    (
        (
            "(show|list|find)( all|) products between {n} and {price}( euros|)",
            "products that cost between {n} and {price}",
            "which products cost between {n} and {price}?",
        ),
        "SELECT * FROM products WHERE price BETWEEN {n} AND {price};",
    ),
    (
        (
            "(show|list|find)( all|)( the|) {cat}( products|)",
            "(which|what) products are in( the category|) {cat}?",
            "products in( the category|) {cat}",
            "what {cat} do we sell?",
            "all {cat}",
        ),
        "SELECT * FROM products WHERE category = '{cat}';",
    ),
    (
        (
            "how many {cat}( products|) (do we have|are there)?",
            "count (the products in|products in|) {cat}",
            "number of {cat}",
            "how many products are in {cat}?",
        ),
        "SELECT COUNT(*) FROM products WHERE category = '{cat}';",
    ),
    (
        (
            "how many products( do we have|) (per|by|in each|for each) category?",
            "count products (per|by) category",
            "products (per|by) category",
        ),
        "SELECT category, COUNT(*) FROM products GROUP BY category;",
    ),
    (
        (
            "(what is|show) the (average|mean) price( of( all|) products|)?",
            "average( product|) price",
            "how much do products cost on average?",
        ),
        "SELECT AVG(price) FROM products;",
    ),
    (
        (
            "(what is|show) the average price (of|in) {cat}?",
            "average price of {cat}",
            "how much do {cat} cost on average?",
        ),
        "SELECT AVG(price) FROM products WHERE category = '{cat}';",
    ),
    (
        ("(what is|show) the average price (per|by|of each|for each) category?", "average price (per|by) category"),
        "SELECT category, AVG(price) FROM products GROUP BY category;",
    ),
    (
        (
            "(what is|which is|show) the (most expensive|priciest|dearest) product?",
            "most expensive product",
            "which product (costs the most|is the most expensive)?",
        ),
        "SELECT * FROM products ORDER BY price DESC LIMIT 1;",
    ),
    (
        (
            "(what is|which is|show) the cheapest product?",
            "cheapest product",
            "which product (costs the least|is the cheapest)?",
        ),
        "SELECT * FROM products ORDER BY price LIMIT 1;",
    ),
    (
        (
            "(show|list|what are)( the|) (top|{n}) most expensive products",
            "(show|list)( the|) top {n} (products by price|most expensive products)",
            "{n} most expensive products",
            "top {n} products by price",
            "the {n} (most expensive|priciest) products",
        ),
        "SELECT * FROM products ORDER BY price DESC LIMIT {n};",
    ),
    (
        ("(show|list|what are)( the|) {n} cheapest products", "{n} cheapest products", "the {n} cheapest products"),
        "SELECT * FROM products ORDER BY price LIMIT {n};",
    ),
    (
        (
            "(which|what) products are (out of stock|sold out)?",
            "(show|list)( all|) (sold out products|products that are out of stock|products out of stock)",
            "out of stock( products|)",
            "products with no stock",
        ),
        "SELECT * FROM products WHERE stock = 0;",
    ),
    (
        (
            "(which|what) products have (less|fewer) than {n} (in stock|left)?",
            "products with (stock (below|under)|less than) {n}( in stock|)",
            "(show|list) products with stock (below|under|less than) {n}",
            "low stock below {n}",
        ),
        "SELECT * FROM products WHERE stock < {n};",
    ),
    (
        (
            "(show|list)( all|) products (sorted|ordered) by (price|their price)",
            "products by price",
            "sort( the|) products by price",
        ),
        "SELECT * FROM products ORDER BY price;",
    ),
    (
        (
            "(show|list)( all|) products (sorted|ordered) by name",
            "products by name",
            "sort( the|) products by name",
            "products in alphabetical order",
        ),
        "SELECT * FROM products ORDER BY name;",
    ),
    (
        (
            "(show|list)( all|) customers (sorted|ordered) by name",
            "customers by name",
            "sort( the|) customers by name",
            "customers in alphabetical order",
        ),
        "SELECT * FROM customers ORDER BY name;",
    ),
    (
        (
            "(what is|show) the (total stock|stock in total)?",
            "how many (items|pieces) are in stock( in total|)?",
            "total stock",
            "sum of the stock",
        ),
        "SELECT SUM(stock) FROM products;",
    ),
    (
        (
            "(show|list|find|get)( me|)( all|) {status} orders",
            "(which|what) orders are {status}?",
            "orders that are {status}",
            "{status} orders",
            "orders with( the|) status {status}",
        ),
        "SELECT * FROM orders WHERE status = '{status}';",
    ),
    (
        (
            "how many orders are {status}?",
            "count( the|)( all|) {status} orders",
            "number of {status} orders",
            "how many {status} orders (are there|do we have)?",
        ),
        "SELECT COUNT(*) FROM orders WHERE status = '{status}';",
    ),
    (
        (
            "how many orders( are there|) (per|by|for each|in each) status?",
            "count orders (per|by) status",
            "orders (per|by) status",
        ),
        "SELECT status, COUNT(*) FROM orders GROUP BY status;",
    ),
    (
        (
            "(what is|show) (the|our) (total revenue|revenue|turnover|total sales)?",
            "total revenue",
            "how much (money did we make|did we earn|did we sell)?",
            "sum of all orders",
            "total of all orders",
            "total sales",
        ),
        "SELECT SUM(total) FROM orders;",
    ),
    (
        (
            "(what is|show) (the|our) (revenue|turnover|sales) in {year}?",
            "revenue (in|of|for) {year}",
            "how much did we (earn|sell|make) in {year}?",
            "total sales (in|for) {year}",
        ),
        "SELECT SUM(total) FROM orders WHERE strftime('%Y', ordered_on) = '{year}';",
    ),
    (
        (
            "(what is|show) the (average|mean) order( value| total|)?",
            "average order( value| total|)",
            "how much is an order on average?",
        ),
        "SELECT AVG(total) FROM orders;",
    ),
    (
        ("(what is|which is|show) the (largest|biggest|most expensive) order?", "(largest|biggest) order"),
        "SELECT * FROM orders ORDER BY total DESC LIMIT 1;",
    ),
    (
        (
            "(show|list)( the|) {n} (largest|biggest) orders",
            "top {n} orders( by total|)",
            "the {n} (largest|biggest) orders",
        ),
        "SELECT * FROM orders ORDER BY total DESC LIMIT {n};",
    ),
    (
        (
            "(show|list)( the|) (last|latest|newest|most recent) {n} orders",
            "(last|latest|newest) {n} orders",
            "the {n} (latest|newest|most recent) orders",
        ),
        "SELECT * FROM orders ORDER BY ordered_on DESC LIMIT {n};",
    ),
    (
        (
            "(show|list|find)( all|) orders (over|above|of more than) {price}( euros|)",
            "(which|what) orders are (over|above|more than) {price}?",
            "orders (over|above) {price}",
        ),
        "SELECT * FROM orders WHERE total > {price};",
    ),
    (
        (
            "how many orders are (over|above) {price}?",
            "count( the|) orders (over|above) {price}",
            "number of orders (over|above) {price}",
        ),
        "SELECT COUNT(*) FROM orders WHERE total > {price};",
    ),
    (
        (
            "(show|list)( all|) orders (from|in|of) {year}",
            "(which|what) orders were made in {year}?",
            "orders (from|in|of) {year}",
        ),
        "SELECT * FROM orders WHERE strftime('%Y', ordered_on) = '{year}';",
    ),
    (
        (
            "how many orders( did we have| were there| were made|) in {year}?",
            "count( the|) orders (in|from) {year}",
            "number of orders in {year}",
        ),
        "SELECT COUNT(*) FROM orders WHERE strftime('%Y', ordered_on) = '{year}';",
    ),
    (
        (
            "(show|list|find)( all|)( the|) orders (of|by|from) {name}",
            "what did {name} (order|buy)?",
            "which orders did {name} (make|place)?",
            "what has {name} (bought|ordered)?",
            "{name}'s orders",
            "orders by {name}",
        ),
        f"SELECT orders.* {_JOIN_C} WHERE customers.name = '{{name}}';",
    ),
    (
        (
            "how many orders did {name} (make|place)?",
            "how many orders does {name} have?",
            "count( the|) orders (of|by) {name}",
            "number of orders by {name}",
            "how often did {name} order?",
        ),
        f"SELECT COUNT(*) {_JOIN_C} WHERE customers.name = '{{name}}';",
    ),
    (
        (
            "how much did {name} (spend|pay)( in total|)?",
            "total spent by {name}",
            "what did {name} spend( in total|)?",
            "sum of( all|) orders (of|by) {name}",
        ),
        f"SELECT SUM(orders.total) {_JOIN_C} WHERE customers.name = '{{name}}';",
    ),
    (
        (
            "(what is|show) the revenue (per|by|in each|for each) city?",
            "revenue (per|by) city",
            "total sales (per|by) city",
            "how much did we sell per city?",
        ),
        f"SELECT customers.city, SUM(orders.total) {_JOIN_C} GROUP BY customers.city;",
    ),
    (
        (
            "(show|list)( all|) orders from (customers in|people in) {city}",
            "orders (from|of) customers in {city}",
            "which orders went to {city}?",
            "orders in {city}",
        ),
        f"SELECT orders.* {_JOIN_C} WHERE customers.city = '{{city}}';",
    ),
    (
        (
            "how much did (each customer|every customer|customers) spend?",
            "(what is|show) the revenue (per|by|of each) customer?",
            "revenue (per|by) customer",
            "total spent (per|by) customer",
        ),
        f"SELECT customers.name, SUM(orders.total) {_JOIN_C} GROUP BY customers.name;",
    ),
    (
        (
            "(who are|show|list)( the| our|) (top|best) {n} customers( by revenue|)",
            "top {n} customers",
            "best {n} customers",
            "which {n} customers spent the most?",
            "the {n} best customers",
        ),
        f"SELECT customers.name, SUM(orders.total) AS spent {_JOIN_C} GROUP BY customers.name ORDER BY spent DESC LIMIT {{n}};",
    ),
    (
        ("(who is|which is) (our|the) best customer?", "best customer", "(who|which customer) spent the most?"),
        f"SELECT customers.name, SUM(orders.total) AS spent {_JOIN_C} GROUP BY customers.name ORDER BY spent DESC LIMIT 1;",
    ),
    (
        (
            "(what is|which is) (our|the) (best selling|best-selling|most popular|most sold) product?",
            "best selling product",
            "most popular product",
            "which product (do we sell most|sells best)?",
        ),
        f"SELECT products.name, SUM(orders.quantity) AS sold {_JOIN_P} GROUP BY products.name ORDER BY sold DESC LIMIT 1;",
    ),
    (
        (
            "(what are|show|list)( the|) (top|best) {n} (selling products|products by sales)",
            "top {n} selling products",
            "{n} best selling products",
            "{n} most popular products",
        ),
        f"SELECT products.name, SUM(orders.quantity) AS sold {_JOIN_P} GROUP BY products.name ORDER BY sold DESC LIMIT {{n}};",
    ),
    (
        (
            "(what is|show) the revenue (per|by|in each|for each) category?",
            "revenue (per|by) category",
            "total sales (per|by) category",
        ),
        f"SELECT products.category, SUM(orders.total) {_JOIN_P} GROUP BY products.category;",
    ),
    (
        (
            "(what is|show) the revenue (of|for|from) {cat}?",
            "how much did we (sell|earn) (in|with) {cat}?",
            "revenue of {cat}",
        ),
        f"SELECT SUM(orders.total) {_JOIN_P} WHERE products.category = '{{cat}}';",
    ),
    (
        (
            "(which|what) customers (have not|never) ordered( anything|)?",
            "customers (without|with no) orders",
            "who never ordered?",
        ),
        "SELECT * FROM customers WHERE id NOT IN (SELECT customer_id FROM orders);",
    ),
    (
        (
            "(which|what) products (were|have) never( been|) (sold|ordered)?",
            "products (without|with no) orders",
            "unsold products",
        ),
        "SELECT * FROM products WHERE id NOT IN (SELECT product_id FROM orders);",
    ),
    (
        (
            "customers whose name (starts|begins) with {letter}",
            "(show|list|find|which) customers (starting|whose name starts) with {letter}",
            "names that start with {letter}",
        ),
        "SELECT * FROM customers WHERE name LIKE '{letter}%';",
    ),
    (
        (
            "products (whose name contains|with|containing) {word} in the name",
            "(find|show|search) products (called|named|containing|like) {word}",
            "search( for|) {word} in( the|) products",
        ),
        "SELECT * FROM products WHERE name LIKE '%{word}%';",
    ),
    (
        ("(what is|show) the price of( product|) {id}?", "how much does product {id} cost?"),
        "SELECT price FROM products WHERE id = {id};",
    ),
    (
        ("how many (pieces|units) of product {id} are (left|in stock)?", "stock of product {id}"),
        "SELECT stock FROM products WHERE id = {id};",
    ),
    (
        (
            "(set|change|raise) the price of product {id} to {price}",
            "update( the|) price of product {id} to {price}",
            "product {id} should cost {price}",
        ),
        "UPDATE products SET price = {price} WHERE id = {id};",
    ),
    (
        (
            "mark order {id} as {status}",
            "set( the|) status of order {id} to {status}",
            "order {id} is {status}, update it",
            "update order {id} to {status}",
        ),
        "UPDATE orders SET status = '{status}' WHERE id = {id};",
    ),
    (
        ("(delete|remove) order {id}", "(delete|remove) the order( with id|) {id}"),
        "DELETE FROM orders WHERE id = {id};",
    ),
    (
        (
            "(add|insert|create) a( new|) customer (called|named) {name} (from|in) {city}",
            "new customer {name} from {city}",
            "add {name} from {city} to( the|) customers",
        ),
        "INSERT INTO customers (name, city) VALUES ('{name}', '{city}');",
    ),
    (
        ("(show|find|get)( me|) order {id}", "order {id}", "details of order {id}", "show order number {id}"),
        "SELECT * FROM orders WHERE id = {id};",
    ),
    (
        ("(show|find|get)( me|) product {id}", "product {id}", "details of product {id}"),
        "SELECT * FROM products WHERE id = {id};",
    ),
)
_NUMBER_NAMES = {2: "two", 3: "three", 4: "four", 5: "five", 10: "ten"}


def sql(rng: random.Random) -> Turn:
    """A question about the invented database and the query that answers it."""
    patterns, query = rng.choice(_SQL)
    n = rng.choice((2, 3, 4, 5, 5, 10, 10, 20, rng.randint(2, 30)))
    name = rng.choice(world.NAMES) if rng.random() < 0.6 else capital(pseudo_word(rng))
    towns = [row[0] for row in world.COUNTRIES.values() if " " not in row[0]]
    city = rng.choice(towns) if rng.random() < 0.6 else capital(pseudo_word(rng))
    slots = {
        "n": n,
        "name": name,
        "city": city,
        "year": rng.randint(2015, 2030),
        "price": rng.choice((rng.randint(31, 100), rng.randint(32, 999), 50, 100, 200, 500)),
        "cat": rng.choice(_CATEGORIES),
        "status": rng.choice(_STATUSES),
        "id": rng.randint(1, 9999),
        "letter": rng.choice("ABCDEFGHIJKLMNOPRSTVW"),
        "word": rng.choice((pseudo_word(rng), rng.choice(world.OTHER_WORDS))),
    }
    spoken = {**slots, "n": _NUMBER_NAMES.get(n, n) if rng.random() < 0.3 else n}
    question = one(patterns, rng, **spoken)
    if "most expensive products" in question and str(spoken["n"]) not in question:
        query = query.replace("{n}", "10")
    text = query.format(**slots)
    return Turn("sql", question, text, text, {"sql": text}, "sql", exact=rng.random() < 0.6)
