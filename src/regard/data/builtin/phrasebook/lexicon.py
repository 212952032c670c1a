"""The words: what the phrasebook can speak of, each entry in English, German and French.

One line an entry, columns apart by `|`. Every English word has one translation within its category, so that a sentence
has one translation.

- Verbs: English, German and French notations (see `inflection`), the classes of noun that their object may have, traits.
  Traits: `may` the object may be left out; `slow`, `loud`, `well` take such adverbs; `here` may say where; `still` is a
  state (no progressive, no past); `kind` speaks of a kind (j'aime le pain); `animal` may have an animal as subject.
- Nouns: English (plural where irregular; `-` has none), German article, singular, plural (~n: weak, den Jungen), French
  gender and word, class.
- Phrases: a word may carry the number of its link (`last:1 week:2`, `la:2 semaine*:2 dernière:1`); words without one
  link with all of the phrase. `*` marks the head where it is not the last word, `#` is a number from two to twelve.
"""

import typing

from regard.data.builtin.phrasebook.inflection import (
    EnglishVerb,
    FrenchVerb,
    GermanVerb,
    english_plural,
    english_verb,
    french_adjective,
    french_plural,
    french_verb,
    german_verb,
)

__all__ = ["Adjective", "Idiom", "Name", "Noun", "Number", "Phrase", "Piece", "Place", "Profession", "Verb"]


class Verb(typing.NamedTuple):
    english: EnglishVerb
    german: GermanVerb
    french: FrenchVerb
    objects: tuple[str, ...]
    traits: frozenset[str]


class Noun(typing.NamedTuple):
    english: tuple[str, str]  # singular, plural; "" where it has none
    german: tuple[tuple[str, str, str], tuple[str, str, str]]  # (nominative, accusative, dative), singular and plural
    gender: int  # German: 0 der, 1 die, 2 das
    french: tuple[str, str]
    feminine: int  # French: 0 masculine, 1 feminine
    kind: str


class Adjective(typing.NamedTuple):
    english: tuple[str, ...]  # tired, or old older; more … than where there is one
    german: str  # as a predicate
    stem: str  # before an ending
    comparative: str
    french: tuple[str, str, str, str]
    before: bool  # French: before the noun
    liaison: str  # masculine before a vowel: bel, vieil, nouvel
    kinds: frozenset[str]


class Piece(typing.NamedTuple):
    """A word of a fixed phrase; `links` is a mask of the phrase's own."""

    form: str
    links: int
    head: bool


class Phrase(typing.NamedTuple):
    english: tuple[Piece, ...]
    german: tuple[Piece, ...]
    french: tuple[Piece, ...]
    counted: bool  # has a number in it


class Place(typing.NamedTuple):
    at: Phrase
    to: Phrase
    kind: str  # near; town, where people live; far, a city or a country


class Name(typing.NamedTuple):
    form: str
    feminine: int


class Number(typing.NamedTuple):
    english: str
    german: str
    french: str


class Profession(typing.NamedTuple):
    english: tuple[str, str]
    german: tuple[tuple[str, str], tuple[str, str]]  # by gender, then number
    french: tuple[tuple[str, str], tuple[str, str]]


class Idiom(typing.NamedTuple):
    """To be hungry: Hunger haben, avoir faim."""

    english: str
    german_verb: str  # sein or haben
    german: str
    none: str  # kein in the right gender, or "" for nicht
    french_verb: str  # être, avoir or faire
    french: str


def rows(table: str) -> list[list[str]]:
    """The lines of a table, split into columns."""
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def verb(english: str, german: str, french: str, objects: str, traits: str) -> Verb:
    return Verb(
        english_verb(english),
        german_verb(german),
        french_verb(french),
        tuple(objects.split()),
        frozenset(traits.split()),
    )


def noun(english: str, german: str, french: str, kind: str) -> Noun:
    singular, _, plural = english.partition(" ")
    article, one, *more = german.split()
    gender = ("der", "die", "das").index(article)
    many = more[0] if more else ""
    weak = many == "~n"
    if weak:
        many = one + ("n" if one[-1] in "er" else "en")
    oblique = many if weak else one
    feminine, word, *irregular = french.split()
    return Noun(
        english=(singular, "" if plural == "-" else plural or english_plural(singular)),
        german=((one, oblique, oblique), (many, many, many if not many or many[-1] in "ns" else many + "n")),
        gender=gender,
        french=(word, irregular[0] if irregular else french_plural(word)),
        feminine="mf".index(feminine),
        kind=kind,
    )


def adjective(english: str, german: str, french: str, kinds: str) -> Adjective:
    plain, comparative, *stem = german.split()
    words = [word for word in french.split() if word not in ("<",)]
    forms = french_adjective(*words[:2])
    return Adjective(
        english=tuple(english.split()),
        german=plain,
        stem=stem[0] if stem else plain.removesuffix("e"),
        comparative=comparative,
        french=forms,
        before="<" in french,
        liaison=words[2] if len(words) > 2 else forms[0],
        kinds=frozenset(kinds.split()),
    )


def pieces(text: str) -> tuple[Piece, ...]:
    found = []
    words = text.split()
    starred = any("*" in word for word in words)
    for index, word in enumerate(words):
        form, _, numbers = word.partition(":")
        head = form.endswith("*") if starred else index == len(words) - 1
        links = sum(1 << int(digit) for digit in numbers) if numbers else 0b111
        for part in (parts := form.rstrip("*").split("_")):
            found.append(Piece(part, links, head and part is parts[-1]))
    return tuple(found)


def phrase(english: str, german: str, french: str) -> Phrase:
    return Phrase(pieces(english), pieces(german), pieces(french), "#" in english)


def prepositional(text: str) -> str:
    """Links for "in the park", "im Park", "à Paris", "home": preposition 0, article 1, noun 2."""
    words = text.split()
    links = {1: ["012"], 2: ["01", "2"], 3: ["0", "1", "2"]}[len(words)]
    return " ".join(f"{word}:{link}" for word, link in zip(words, links, strict=True))


def place(english: str, german: str, french: str, kind: str) -> Place:
    ways = [list(map(prepositional, column.split(" / "))) for column in (english, german, french)]
    return Place(phrase(*(way[0] for way in ways)), phrase(*(way[-1] for way in ways)), kind)


VERBS = """
eat ate                     | essen isst isst gegessen          | manger                                    | food snack     | may slow here animal
drink drank                 | trinken getrunken                 | boire bois boit buvons boivent bu         | drink          | slow here animal
cook                        | kochen                            | cuisiner                                  |                | well here
sleep slept                 | schlafen schläfst schläft geschlafen | dormir dors dort dormons dorment dormi |                | well here animal
work                        | arbeiten                          | travailler                                |                | well slow here
sing sang                   | singen gesungen                   | chanter                                   | song           | may well loud here
dance                       | tanzen                            | danser                                    |                | well here
swim swam swimming          | schwimmen geschwommen *           | nager                                     |                | well slow
laugh                       | lachen                            | rire ris rit rions rient ri               |                | loud
cry                         | weinen                            | pleurer                                   |                | loud
smoke                       | rauchen                           | fumer                                     |                | here
run ran running             | laufen läufst läuft gelaufen *    | courir cours court courons courent couru  |                | slow animal
get got getting ~up         | auf/stehen gestanden *            | se lever lèv                              |                | slow
wake woke ~up               | auf/wachen *                      | se réveiller                              |                |
come came ~back             | zurück/kommen gekommen *          | revenir reviens revient revenons reviennent revenu ^ |     |
arrive                      | an/kommen gekommen *              | arriver ^                                 |                |
leave left                  | ab/reisen *                       | partir pars part partons partent parti ^  |                |
go went ~out                | aus/gehen gegangen *              | sortir sors sort sortons sortent sorti ^  |                |
watch ~television           | fern/sehen siehst sieht gesehen   | regarder &la &télévision                  |                | here
go went ~shopping           | ein/kaufen                        | faire fais fait faisons font fait &les &courses |          |
buy bought                  | kaufen                            | acheter achèt                             | food snack drink text clothes thing vehicle | here
sell sold                   | verkaufen verkauft                | vendre vends vend vendons vendent vendu   | thing vehicle animal clothes | here
order                       | bestellen bestellt                | commander                                 | food drink     | here
see saw                     | sehen siehst sieht gesehen        | voir vois voit voyons voient vu           | person family animal nature vehicle | here animal still past
hear heard                  | hören                             | entendre entends entend entendons entendent entendu | animal song person | still past
read read                   | lesen liest liest gelesen         | lire lis lit lisons lisent lu             | text           | may slow here
write wrote                 | schreiben geschrieben             | écrire écris écrit écrivons écrivent écrit | text          | slow
find found                  | finden findest findet gefunden    | trouver                                   | thing animal   | here still past
lose lost                   | verlieren verloren                | perdre perds perd perdons perdent perdu   | thing clothes  | here still past
look +for                   | suchen                            | chercher                                  | thing person animal clothes | here
repair                      | reparieren repariert              | réparer                                   | vehicle device | slow here
wash                        | waschen wäschst wäscht gewaschen  | laver                                     | clothes vehicle dish |
clean                       | putzen                            | nettoyer nettoi                           | room door      |
paint                       | malen                             | peindre peins peint peignons peignent peint | nature animal |
carry                       | tragen trägst trägt getragen      | porter                                    | thing          | slow
wear wore                   | tragen trägst trägt getragen      | porter                                    | clothes        |
invite                      | ein/laden lädst lädt geladen      | inviter                                   | person family  |
call                        | an/rufen gerufen                  | appeler appell                            | person family  |
meet met                    | treffen triffst trifft getroffen  | rencontrer                                | person family  | here
bring brought               | mit/bringen gebracht              | apporter                                  | food snack drink text |
open                        | auf/machen                        | ouvrir ouvre ouvres ouvre ouvrons ouvrent ouvert | door    | slow
close                       | zu/machen                         | fermer                                    | door           | slow
tidy ~up                    | auf/räumen                        | ranger                                    | room           | slow
turn ~on                    | an/machen                         | allumer                                   | device         |
turn ~off                   | aus/machen                        | éteindre éteins éteint éteignons éteignent éteint | device |
look +at                    | an/sehen siehst sieht gesehen     | regarder                                  | nature person animal |
understand understood       | verstehen verstanden              | comprendre comprends comprend comprenons comprennent compris | idea person | still past
learn                       | lernen                            | apprendre apprends apprend apprenons apprennent appris | song idea1 | slow
love                        | lieben                            | aimer                                     | person family animal | still
like                        | mögen mag magst mag gemocht       | aimer                                     | food snack drink animal text vehicle | still kind
know knew                   | kennen gekannt                    | connaître connais connaît connaissons connaissent connu | person family song | still
have had                    | haben hast hat gehabt             | avoir ai as a avons ont eu                | animal thing vehicle text | still
help                        | helfen hilfst hilft geholfen @dat | aider                                     | person family  |
thank                       | danken @dat                       | remercier                                 | person family  |
follow                      | folgen * @dat                     | suivre suis suit suivons suivent suivi    | person animal  |
listen +to                  | zu/hören @dat                     | écouter                                   | person family  |
congratulate                | gratulieren gratuliert @dat       | féliciter                                 | person family  |
answer                      | antworten @dat                    | répondre réponds répond répondons répondent répondu @à | person family |
trust                       | vertrauen vertraut @dat           | faire fais fait faisons font fait &confiance @à | person family | still
visit                       | besuchen besucht                  | rendre rends rend rendons rendent rendu &visite @à | person family |
wait +for                   | warten +auf.acc                   | attendre attends attend attendons attendent attendu | person family transit | may here
speak spoke +with           | sprechen sprichst spricht gesprochen +mit.dat | parler +avec                  | person family  | slow here
play +with                  | spielen +mit.dat                  | jouer +avec                               | person animal  | may here animal
think thought +of           | denken gedacht +an.acc            | penser +à                                 | person family idea |
dream +of                   | träumen +von.dat                  | rêver +de                                 | person animal vehicle |
drive drove                 | fahren fährst fährt gefahren      | conduire conduis conduit conduisons conduisent conduit | vehicle1 | slow
take took                   | nehmen nimmst nimmt genommen      | prendre prends prend prenons prennent pris | transit       |
"""
GIVING = """
give gave                   | geben gibst gibt gegeben          | donner                                    | thing snack text animal |
show                        | zeigen                            | montrer                                   | thing text clothes animal |
send sent                   | schicken                          | envoyer envoi                             | text thing     |
lend lent                   | leihen geliehen                   | prêter                                    | thing vehicle text |
tell told                   | erzählen erzählt                  | raconter                                  | story          |
explain                     | erklären erklärt                  | expliquer                                 | idea           |
"""
GOING = """
go went                     | gehen gegangen *                  | aller vais vas va allons vont allé ^      | near           |
go went                     | fahren fährst fährt gefahren *    | aller vais vas va allons vont allé ^      | far            |
come came                   | kommen gekommen *                 | venir viens vient venons viennent venu ^  | near far       |
"""
STAYING = """
stay                        | bleiben geblieben *               | rester ^                                  |                |
live                        | wohnen                            | habiter                                   |                | still
"""
THINKING = """
think                       | denken                            | penser                                    |                |
believe                     | glauben                           | croire crois croit croyons croient cru    |                |
know                        | wissen weiß weißt weiß gewusst    | savoir sais sait savons savent su         |                |
hope                        | hoffen                            | espérer espèr                             |                |
say                         | sagen                             | dire dis dit disons disent dit            |                |
"""
TRYING = """
try                         | versuchen versucht                | essayer essai +de                         |                |
begin began beginning       | beginnen begonnen                 | commencer +à                              |                |
forget forgot               | vergessen vergisst vergisst vergessen | oublier +de                           |                |
decide                      | beschließen beschlossen           | décider +de                               |                |
promise                     | versprechen versprichst verspricht versprochen | promettre promets promet promettons promettent promis +de | |
"""
WEATHER = """
rain                        | regnen                            | pleuvoir pleus pleut pleuvons pleuvent plu |               |
snow                        | schneien                          | neiger                                    |                |
"""
NOUNS = """
man men                     | der Mann Männer                   | m homme                                   | person
woman women                 | die Frau Frauen                   | f femme                                   | person
child children              | das Kind Kinder                   | m enfant                                  | person
boy                         | der Junge ~n                      | m garçon                                  | person
girl                        | das Mädchen Mädchen               | f fille                                   | person
teacher                     | der Lehrer Lehrer                 | m professeur                              | person
doctor                      | der Arzt Ärzte                    | m médecin                                 | person
friend                      | der Freund Freunde                | m ami                                     | person
neighbour                   | der Nachbar ~n                    | m voisin                                  | person
student                     | der Student ~n                    | m étudiant                                | person
guest                       | der Gast Gäste                    | m invité                                  | person
colleague                   | der Kollege ~n                    | m collègue                                | person
brother                     | der Bruder Brüder                 | m frère                                   | family
sister                      | die Schwester Schwestern          | f sœur                                    | family
father                      | der Vater Väter                   | m père                                    | family
mother                      | die Mutter Mütter                 | f mère                                    | family
son                         | der Sohn Söhne                    | m fils                                    | family
daughter                    | die Tochter Töchter               | f fille                                   | family
uncle                       | der Onkel Onkel                   | m oncle                                   | family
aunt                        | die Tante Tanten                  | f tante                                   | family
grandmother                 | die Großmutter Großmütter         | f grand-mère grands-mères                 | family
grandfather                 | der Großvater Großväter           | m grand-père grands-pères                 | family
dog                         | der Hund Hunde                    | m chien                                   | animal
cat                         | die Katze Katzen                  | m chat                                    | animal
horse                       | das Pferd Pferde                  | m cheval                                  | animal
bird                        | der Vogel Vögel                   | m oiseau                                  | animal
cow                         | die Kuh Kühe                      | f vache                                   | animal
apple                       | der Apfel Äpfel                   | f pomme                                   | snack
egg                         | das Ei Eier                       | m œuf                                     | snack
cake                        | der Kuchen Kuchen                 | m gâteau                                  | snack
orange                      | die Orange Orangen                | f orange                                  | snack
tomato tomatoes             | die Tomate Tomaten                | f tomate                                  | snack
bread -                     | das Brot                          | m pain                                    | food
cheese -                    | der Käse                          | m fromage                                 | food
meat -                      | das Fleisch                       | f viande                                  | food
fish -                      | der Fisch                         | m poisson                                 | food
rice -                      | der Reis                          | m riz                                     | food
soup -                      | die Suppe                         | f soupe                                   | food
pizza -                     | die Pizza                         | f pizza                                   | food
salad -                     | der Salat                         | f salade                                  | food
chocolate -                 | die Schokolade                    | m chocolat                                | food
water -                     | das Wasser                        | f eau                                     | drink
milk -                      | die Milch                         | m lait                                    | drink
coffee -                    | der Kaffee                        | m café                                    | drink
tea -                       | der Tee                           | m thé                                     | drink
wine -                      | der Wein                          | m vin                                     | drink
beer -                      | das Bier                          | f bière                                   | drink
juice -                     | der Saft                          | m jus                                     | drink
book                        | das Buch Bücher                   | m livre                                   | text
letter                      | der Brief Briefe                  | f lettre                                  | text
newspaper                   | die Zeitung Zeitungen             | m journal                                 | text
poem                        | das Gedicht Gedichte              | m poème                                   | text
story                       | die Geschichte Geschichten        | f histoire                                | story
table                       | der Tisch Tische                  | f table                                   | thing
chair                       | der Stuhl Stühle                  | f chaise                                  | thing
key                         | der Schlüssel Schlüssel           | f clé                                     | thing
bag                         | die Tasche Taschen                | m sac                                     | thing
guitar                      | die Gitarre Gitarren              | f guitare                                 | thing
umbrella                    | der Regenschirm Regenschirme      | m parapluie                               | thing
knife knives                | das Messer Messer                 | m couteau                                 | dish
plate                       | der Teller Teller                 | f assiette                                | dish
glass                       | das Glas Gläser                   | m verre                                   | dish
cup                         | die Tasse Tassen                  | f tasse                                   | dish
lamp                        | die Lampe Lampen                  | f lampe                                   | device
computer                    | der Computer Computer             | m ordinateur                              | device
radio                       | das Radio Radios                  | f radio                                   | device
coat                        | der Mantel Mäntel                 | m manteau                                 | clothes
shirt                       | das Hemd Hemden                   | f chemise                                 | clothes
hat                         | der Hut Hüte                      | m chapeau                                 | clothes
dress                       | das Kleid Kleider                 | f robe                                    | clothes
shoe                        | der Schuh Schuhe                  | f chaussure                               | clothes
door                        | die Tür Türen                     | f porte                                   | door
window                      | das Fenster Fenster               | f fenêtre                                 | door
room                        | das Zimmer Zimmer                 | f chambre                                 | room
flat                        | die Wohnung Wohnungen             | m appartement                             | room
car                         | das Auto Autos                    | f voiture                                 | vehicle1
bicycle                     | das Fahrrad Fahrräder             | m vélo                                    | vehicle
train                       | der Zug Züge                      | m train                                   | transit
bus                         | der Bus Busse                     | m bus                                     | transit
house                       | das Haus Häuser                   | f maison                                  | nature
tree                        | der Baum Bäume                    | m arbre                                   | nature
flower                      | die Blume Blumen                  | f fleur                                   | nature
mountain                    | der Berg Berge                    | f montagne                                | nature
star                        | der Stern Sterne                  | f étoile                                  | nature
song                        | das Lied Lieder                   | f chanson                                 | song
question                    | die Frage Fragen                  | f question                                | idea
answer                      | die Antwort Antworten             | f réponse                                 | idea
problem                     | das Problem Probleme              | m problème                                | idea
rule                        | die Regel Regeln                  | f règle                                   | idea1
language                    | die Sprache Sprachen              | f langue                                  | idea1
"""
INCLUDES = {  # a class of objects may take in others
    "thing": ("thing", "dish", "device"),
    "text": ("text", "story"),
    "vehicle": ("vehicle", "vehicle1"),
    "idea": ("idea", "idea1"),
}
ADJECTIVES = """
big bigger                  | groß größer                       | grand <                                   | animal thing dish vehicle vehicle1 nature room door snack clothes
small smaller               | klein kleiner                     | petit <                                   | animal thing dish device vehicle vehicle1 nature room door snack clothes
old older                   | alt älter                         | vieux vieille vieil <                     | person animal thing device vehicle vehicle1 nature clothes song transit
young younger               | jung jünger                       | jeune <                                   | person animal
new newer                   | neu neuer                         | nouveau nouvelle nouvel <                 | thing dish device vehicle vehicle1 clothes text story song room transit
good                        | gut -                             | bon bonne <                               | food drink snack text story song idea person
bad                         | schlecht -                        | mauvais <                                 | food drink text story song idea
beautiful                   | schön schöner                     | beau belle bel <                          | nature clothes text story song room animal
long longer                 | lang länger                       | long longue <                             | text story song
red                         | rot -                             | rouge                                     | thing dish device vehicle vehicle1 clothes door snack transit
blue                        | blau -                            | bleu                                      | thing dish device vehicle vehicle1 clothes door transit
green                       | grün -                            | vert                                      | thing dish vehicle vehicle1 clothes door snack transit
black                       | schwarz -                         | noir                                      | thing dish device vehicle vehicle1 clothes animal
white                       | weiß -                            | blanc blanche                             | thing dish device vehicle vehicle1 clothes animal door
expensive                   | teuer teurer teur                 | cher chère                                | thing dish device vehicle vehicle1 clothes room
cold colder                 | kalt kälter                       | froid                                     | food drink room
hot hotter                  | heiß heißer                       | chaud                                     | food drink
fresh                       | frisch -                          | frais fraîche                             | food snack
interesting                 | interessant interessanter         | intéressant                               | text story song idea idea1 person
easy easier                 | leicht leichter                   | facile                                    | idea idea1 text song
difficult                   | schwierig schwieriger             | difficile                                 | idea idea1 text song
German                      | deutsch -                         | allemand                                  | text story song food drink vehicle1
French                      | französisch -                     | français                                  | text story song food drink vehicle1
Italian                     | italienisch -                     | italien italienne                         | text story song food drink vehicle1
friendly                    | freundlich freundlicher           | sympathique                               | person
happy happier               | glücklich glücklicher             | heureux heureuse                          | person
sad sadder                  | traurig trauriger                 | triste                                    | person story song
ill                         | krank -                           | malade                                    | person animal
famous                      | berühmt berühmter                 | célèbre                                   | person
intelligent                 | intelligent intelligenter         | intelligent                               | person animal
funny funnier               | lustig lustiger                   | drôle                                     | person story song animal
heavy heavier               | schwer schwerer                   | lourd                                     | thing
dirty dirtier               | schmutzig schmutziger             | sale                                      | clothes vehicle vehicle1 dish room door
"""
FEELINGS = """
tired                       | müde müder                        | fatigué                                   | person animal
angry                       | wütend -                          | furieux furieuse                          | person
rich richer                 | reich reicher                     | riche                                     | person
"""
PROFESSIONS = """
teacher                     | Lehrer Lehrer Lehrerin            | professeur professeure
student                     | Student Studenten Studentin       | étudiant étudiante
baker                       | Bäcker Bäcker Bäckerin            | boulanger boulangère
singer                      | Sänger Sänger Sängerin            | chanteur chanteuse
lawyer                      | Anwalt Anwälte Anwältin           | avocat avocate
"""
IDIOMS = """
hungry | haben | Hunger | keinen | avoir | faim
thirsty | haben | Durst | keinen | avoir | soif
afraid | haben | Angst | keine | avoir | peur
right | haben | recht | | avoir | raison
"""
SKIES = """
cold | sein | kalt | | faire | froid
warm | sein | warm | | faire | chaud
late | sein | spät | | être | tard
dark | sein | dunkel | | faire | nuit
"""
PLACES = """
at school / to school                 | in der Schule / in die Schule         | à l' école               | near
at home / home                        | zu Hause / nach Hause                 | à la maison              | near
at the office / to the office         | im Büro / ins Büro                    | au bureau                | near
in the park / to the park             | im Park / in den Park                 | dans le parc / au parc   | near
at the station / to the station       | am Bahnhof / zum Bahnhof              | à la gare                | near
at the restaurant / to the restaurant | im Restaurant / ins Restaurant        | au restaurant            | near
at the cinema / to the cinema         | im Kino / ins Kino                    | au cinéma                | near
at the museum / to the museum         | im Museum / ins Museum                | au musée                 | near
in the kitchen / to the kitchen       | in der Küche / in die Küche           | dans la cuisine          | near
in the garden / to the garden         | im Garten / in den Garten             | dans le jardin           | near
in town / to town                     | in der Stadt / in die Stadt           | en ville                 | town
in the village / to the village       | im Dorf / ins Dorf                    | au village               | town
at the hospital / to the hospital     | im Krankenhaus / ins Krankenhaus      | à l' hôpital             | near
at the library / to the library       | in der Bibliothek / in die Bibliothek | à la bibliothèque        | near
at the market / to the market         | auf dem Markt / auf den Markt         | au marché                | near
at the beach / to the beach           | am Strand / an den Strand             | à la plage               | near
at the airport / to the airport       | am Flughafen / zum Flughafen          | à l' aéroport            | near
at the hotel / to the hotel           | im Hotel / ins Hotel                  | à l' hôtel               | near
in Berlin / to Berlin                 | in Berlin / nach Berlin               | à Berlin                 | far
in Paris / to Paris                   | in Paris / nach Paris                 | à Paris                  | far
in Vienna / to Vienna                 | in Wien / nach Wien                   | à Vienne                 | far
in Germany / to Germany               | in Deutschland / nach Deutschland     | en Allemagne             | far
in France / to France                 | in Frankreich / nach Frankreich       | en France                | far
in Switzerland / to Switzerland       | in der Schweiz / in die Schweiz       | en Suisse                | far
in Canada / to Canada                 | in Kanada / nach Kanada               | au Canada                | far
"""
PAST_TIMES = """
yesterday                   | gestern                           | hier
last:0 night:1              | gestern:0 Abend:1                 | hier:0 soir:1
this:0 morning:1            | heute:0 Morgen:1                  | ce:0 matin:1
last:0 week:1               | letzte:0 Woche:1                  | la:1 semaine*:1 dernière:0
last:0 year:1               | letztes:0 Jahr:1                  | l':1 année*:1 dernière:0
recently                    | neulich                           | récemment
#:0 days*:1 ago:2           | vor:2 #:0 Tagen:1                 | il:2 y:2 a:2 #:0 jours:1
"""
HABITS = """
every:0 day:1               | jeden:0 Tag:1                     | chaque:0 jour:1
every:0 week:1              | jede:0 Woche:1                    | chaque:0 semaine:1
in:0 the:1 evening:2        | am:01 Abend:2                     | le:1 soir:02
in:0 the:1 morning:2        | am:01 Morgen:2                    | le:1 matin:02
in:0 summer:1               | im:0 Sommer:1                     | en:0 été:1
in:0 winter:1               | im:0 Winter:1                     | en:0 hiver:1
"""
NOW = """
now                         | jetzt                             | maintenant
today                       | heute                             | aujourd'hui
at:0 the:1 moment:2         | im:01 Moment:2                    | en:0 ce:1 moment:2
"""
FUTURE_TIMES = """
tomorrow                    | morgen                            | demain
tonight                     | heute Abend                       | ce soir
soon                        | bald                              | bientôt
next:0 week:1               | nächste:0 Woche:1                 | la:1 semaine*:1 prochaine:0
next:0 year:1               | nächstes:0 Jahr:1                 | l':1 année*:1 prochaine:0
in:0 #:1 days:2             | in:0 #:1 Tagen:2                  | dans:0 #:1 jours:2
at:0 #:1 o'clock:2          | um:0 #:1 Uhr:2                    | à:0 #:1 heures:2
"""
DAYS = """
on:0 Monday:1               | am:0 Montag:1                     | lundi:01
on:0 Wednesday:1            | am:0 Mittwoch:1                   | mercredi:01
on:0 Friday:1               | am:0 Freitag:1                    | vendredi:01
on:0 Sunday:1               | am:0 Sonntag:1                    | dimanche:01
"""
OFTEN = """
often                       | oft                               | souvent
always                      | immer                             | toujours
sometimes                   | manchmal                          | parfois
"""
MANNERS = {
    "slow": "slowly | langsam | lentement\nquickly | schnell | rapidement",
    "loud": "loudly | laut | fort",
    "well": "well | gut | bien\nbadly | schlecht | mal",
    "together": "together | zusammen | ensemble",
}
CONJUNCTIONS = {
    "because": "because | weil | parce que*",
    "although": "even though | obwohl | même si",
    "when": "when | wenn | quand",
    "then": "when | als | quand",  # in the past
    "if": "if | wenn | si",
    "while": "while | während | pendant que",
    "and": "and | und | et",
    "but": "but | aber | mais",
    "that": "that | dass | que",
    "whether": "whether | ob | si",
}
ASKING = {
    "where": "where | wo | où",
    "whither": "where | wohin | où",
    "when": "when | wann | quand",
    "why": "why | warum | pourquoi",
}
NAMES = [Name("Anna", 1), Name("Peter", 0), Name("Maria", 1), Name("Paul", 0), Name("Julia", 1), Name("Martin", 0)]
NUMBERS = [
    Number(*words)
    for words in zip(
        "two three four five six seven eight nine ten eleven twelve".split(),
        "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf".split(),
        "deux trois quatre cinq six sept huit neuf dix onze douze".split(),
        strict=True,
    )
]


def verbs(table: str) -> list[Verb]:
    return [verb(*row) for row in rows(table)]


def phrases(table: str) -> list[Phrase]:
    return [phrase(*row) for row in rows(table)]


def profession(english: str, german: str, french: str) -> Profession:
    man, men, woman = german.split()
    he, she = french.split()
    return Profession(
        (english, english_plural(english)),
        ((man, men), (woman, woman + "nen")),
        ((he, french_plural(he)), (she, french_plural(she))),
    )
