"""Sentences translated by hand, and a corpus sample that several tests share."""

import functools
import os
import pickle
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import portalocker
from corpora.phrasebook import draws

from regard.data import Example

# English, German, French, written before running the grammar.
BY_HAND = [
    ("I ate pizza yesterday .", "ich habe gestern Pizza gegessen .", "j' ai mangé de la pizza hier ."),
    ("yesterday I ate pizza .", "gestern habe ich Pizza gegessen .", "hier j' ai mangé de la pizza ."),
    ("she does not eat meat .", "sie isst kein Fleisch .", "elle ne mange pas de viande ."),
    ("I do not have a dog .", "ich habe keinen Hund .", "je n' ai pas de chien ."),
    ("he is sleeping .", "er schläft .", "il dort ."),
    ("did you see her ?", "hast du sie gesehen ?", "est-ce que tu l' as vue ?"),
    ("I do not see him .", "ich sehe ihn nicht .", "je ne le vois pas ."),
    ("she called me .", "sie hat mich angerufen .", "elle m' a appelé ."),
    ("he calls his mother every day .", "er ruft jeden Tag seine Mutter an .", "il appelle sa mère chaque jour ."),
    (
        "I am happy because you called me .",
        "ich bin glücklich , weil du mich angerufen hast .",
        "je suis heureux parce que tu m' as appelé .",
    ),
    ("she forgot to call me .", "sie hat vergessen , mich anzurufen .", "elle a oublié de m' appeler ."),
    ("he tries to open the window .", "er versucht , das Fenster aufzumachen .", "il essaie d' ouvrir la fenêtre ."),
    (
        "we will go to Berlin tomorrow .",
        "wir werden morgen nach Berlin fahren .",
        "nous allons aller à Berlin demain .",
    ),
    ("they went to school .", "sie sind in die Schule gegangen .", "ils sont allés à l' école ."),
    ("where does he live ?", "wo wohnt er ?", "où est-ce qu' il habite ?"),
    ("where did you go ?", "wohin bist du gegangen ?", "où est-ce que tu es allé ?"),
    ("who is singing ?", "wer singt ?", "qui chante ?"),
    ("who did you help ?", "wem hast du geholfen ?", "qui est-ce que tu as aidé ?"),
    ("what are you reading ?", "was liest du ?", "qu' est-ce que tu lis ?"),
    ("which car did she buy ?", "welches Auto hat sie gekauft ?", "quelle voiture est-ce qu' elle a achetée ?"),
    (
        "how many apples did she eat ?",
        "wie viele Äpfel hat sie gegessen ?",
        "combien de pommes est-ce qu' elle a mangées ?",
    ),
    ("when will he come back ?", "wann wird er zurückkommen ?", "quand est-ce qu' il va revenir ?"),
    ("why are you sad ?", "warum bist du traurig ?", "pourquoi est-ce que tu es triste ?"),
    ("he must not smoke .", "er darf nicht rauchen .", "il ne doit pas fumer ."),
    ("we cannot swim .", "wir können nicht schwimmen .", "nous ne pouvons pas nager ."),
    ("I like to dance .", "ich tanze gern .", "j' aime danser ."),
    ("I am hungry .", "ich habe Hunger .", "j' ai faim ."),
    ("she is not thirsty .", "sie hat keinen Durst .", "elle n' a pas soif ."),
    (
        "when it rains , we stay at home .",
        "wenn es regnet , bleiben wir zu Hause .",
        "quand il pleut , nous restons à la maison .",
    ),
    (
        "when it rained , he opened the window .",
        "als es geregnet hat , hat er das Fenster aufgemacht .",
        "quand il a plu , il a ouvert la fenêtre .",
    ),
    (
        "if it is cold , I will drink tea .",
        "wenn es kalt ist , werde ich Tee trinken .",
        "s' il fait froid , je vais boire du thé .",
    ),
    (
        "he works even though he is tired .",
        "er arbeitet , obwohl er müde ist .",
        "il travaille même s' il est fatigué .",
    ),
    ("I think that she is right .", "ich denke , dass sie recht hat .", "je pense qu' elle a raison ."),
    (
        "I do not know whether he lives in Paris .",
        "ich weiß nicht , ob er in Paris wohnt .",
        "je ne sais pas s' il habite à Paris .",
    ),
    (
        "I bought the book that you wrote .",
        "ich habe das Buch gekauft , das du geschrieben hast .",
        "j' ai acheté le livre que tu as écrit .",
    ),
    (
        "the man who lives in Berlin reads a book .",
        "der Mann , der in Berlin wohnt , liest ein Buch .",
        "l' homme qui habite à Berlin lit un livre .",
    ),
    ("she gives the child an apple .", None, None),  # the grammar uses "to"
    ("she gives an apple to the child .", "sie gibt dem Kind einen Apfel .", "elle donne une pomme à l' enfant ."),
    ("he gave it to me .", "er hat es mir gegeben .", "il me l' a donné ."),
    ("he gave it to him .", "er hat es ihm gegeben .", "il le lui a donné ."),
    (
        "we showed them our new coat .",
        "wir haben ihnen unseren neuen Mantel gezeigt .",
        "nous leur avons montré notre nouveau manteau .",
    ),
    (
        "the old man has a beautiful horse .",
        "der alte Mann hat ein schönes Pferd .",
        "le vieil homme a un beau cheval .",
    ),
    ("I drink cold water .", "ich trinke kaltes Wasser .", "je bois de l' eau froide ."),
    ("she is wearing a red dress .", "sie trägt ein rotes Kleid .", "elle porte une robe rouge ."),
    ("I am waiting for my friends .", "ich warte auf meine Freunde .", "j' attends mes amis ."),
    ("he answered the teacher .", "er hat dem Lehrer geantwortet .", "il a répondu au professeur ."),
    ("we dream of the mountains .", None, None),  # the grammar has no dreams of nature
    ("they dream of their car .", "sie träumen von ihrem Auto .", "ils rêvent de leur voiture ."),
    (
        "Anna 's brother is older than me .",
        "Annas Bruder ist älter als ich .",
        "le frère d' Anna est plus vieux que moi .",
    ),
    ("my sister is a teacher .", "meine Schwester ist Lehrerin .", "ma sœur est professeure ."),
    ("they bought bread and cheese .", "sie haben Brot und Käse gekauft .", "ils ont acheté du pain et du fromage ."),
    ("she got up at seven o'clock .", "sie ist um sieben Uhr aufgestanden .", "elle s' est levée à sept heures ."),
    (
        "the girls arrived three days ago .",
        "die Mädchen sind vor drei Tagen angekommen .",
        "les filles sont arrivées il y a trois jours .",
    ),
    ("he never drinks wine .", "er trinkt nie Wein .", "il ne boit jamais de vin ."),
    ("I often help my neighbour .", "ich helfe oft meinem Nachbarn .", "j' aide souvent mon voisin ."),
    (
        "Peter is tired , but he is working .",
        "Peter ist müde , aber er arbeitet .",
        "Peter est fatigué , mais il travaille .",
    ),
    (
        "you should visit your grandmother .",
        "du solltest deine Großmutter besuchen .",
        "tu devrais rendre visite à ta grand-mère .",
    ),
    ("she was ill last week .", "sie war letzte Woche krank .", "elle était malade la semaine dernière ."),
]


CALL = """
import pickle, sys
function, arguments = pickle.load(sys.stdin.buffer)
pickle.dump(function(*arguments), sys.stdout.buffer)
"""


def without_hook(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function of `draws.py`. The tests' shape-checking hook makes drawing twenty times slower.

    With the hook, another process draws. Test processes share the first one's result.
    """
    name = f"{function.__name__}-{zlib.crc32(repr(arguments).encode()):08x}.pickle"
    path = Path(os.environ["REGARD_TEST_SHARED"]) / name
    with portalocker.Lock(path.with_suffix(".lock"), timeout=240):
        if not path.exists():
            path.write_bytes(
                draw_apart(function, arguments) if "shapes" in sys.modules else pickle.dumps(function(*arguments))
            )
    return pickle.loads(path.read_bytes())


def draw_apart(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    """Call the function in a new process."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        [sys.executable, "-c", CALL],
        input=pickle.dumps((function, arguments)),
        stdout=subprocess.PIPE,
        check=True,
        env={**os.environ, "PYTHONPATH": paths},
    ).stdout


@functools.cache
def sample(pair: str, count: int = 20_000, longest: int = 14, edition: int = 1, seed: int = 1) -> list[Example]:
    """Return sentences of the corpus, drawn as in a user's program."""
    return without_hook(draws.sample, pair, count, longest, edition, seed)


@functools.cache
def spaced(pair: str, count: int = 12_000) -> list[Example]:
    """Return sentences of the grammar in both editions, with words separated by spaces."""
    return [*sample(pair), *without_hook(draws.plain, pair, count)]


@functools.cache
def derived() -> dict[str, list[str] | None]:
    """Return the grammar's German and French for the sentences of BY_HAND."""
    asked = [(english, german is not None) for english, german, _ in BY_HAND]
    return {source: said for (source, _), said in zip(asked, without_hook(draws.derive, asked), strict=True)}
