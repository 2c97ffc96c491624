"""The words of the world: parts of names, and plain values.

Every entity is two words (a first and a last name, a prefix and a town, a stem and a kind of firm), so
that a model that has met every word has still met only some of the pairs. No word stands in two lists.
"""

from __future__ import annotations

FIRST_NAMES = tuple(
    """
    Ada Agnes Alba Alec Alma Amos Anders Anita Anton Arlo Arne Astrid Aurel Axel Basil Beata Bella Benno
    Berta Birgit Boris Britta Bruno Carla Carmen Casper Cecil Celia Clara Conrad Cora Cyril Dagmar
    Damian Daria Delia Denis Diana Dora Doris Edgar Edith Egon Elena Elias Elin Elmer Elsa Emil Emma
    Enid Erik Erna Esther Eva Fabian Felix Fiona Flora Frank Frida Gerda Gilbert Gisela Greta Gustav
    Hanna Harald Hector Hedda Heidi Helga Henrik Hilda Holger Hugo Ida Igor Ilse Ines Ingrid Irene Iris
    Isak Ivan Ivo Jakob Jana Janet Jasper Joan Jonas Josef Julia Julius Jutta Karin Karl Kasimir Katja
    Kirsten Klaus Klara Knut Kurt Lars Laura Lea Lena Leo Leon Lidia Lina Linus Lisa Livia Lorenz Louis
    Luca Lucy Ludwig Luisa Magda Magnus Malte Marcel Margit Maria Marlene Marta Martin Mathis Matilda
    Max Mia Mikael Mila Milan Mina Mira Monica Moritz Nadia Nelly Nicolai Nils Nina Nora Olaf Olga
    Oliver Oskar Otto Paula Pavel Pedro Petra Philip Pia Quentin Rafael Ralf Regina Rita Robert Roland
    Rolf Rosa Rudolf Ruth Sara Selma Sigrid Silas Simon Sofia Sonja Stefan Stella Sven Tamara Tea Theo
    Thomas Tilda Tobias Tom Ulla Urban Ursula Vera Viktor Vilma Walter Wanda Willa Yara Yvonne Zita Zoe
    """.split()
)

_LAST_STEMS = (
    "Lind Sand Nord Dal Ek Sten Wester Oster Hag Ros Gran Alm Bjork Hed Back Kvist Soder Ny Fors Ahl".split()
)
_LAST_ENDINGS = "berg strom gren quist man holm lund blad mark ros".split()
LAST_NAMES = ("Berg", *(a + b for a in _LAST_STEMS for b in _LAST_ENDINGS if a.lower() != b))[:200]

TOWN_PREFIXES = tuple("Port Upper Lower Old New North South East West Great Little Saint".split())
_TOWN_STEMS = "Tarn Brack Holl Ash Wen Mar Sel Dun Thorn Kel".split()
_TOWN_ENDINGS = "wick ford ham mere stead by dale ness combe holt".split()
TOWN_STEMS = ("Oslo", *(a + b for a in _TOWN_STEMS for b in _TOWN_ENDINGS))[:100]

_FIRM_STEMS = "Nor Vel Quin Zan Orb Lum Hex Cor Dax Fen Gal Tri".split()
_FIRM_ENDINGS = "vik tek ara ion well mont sol gard line dor".split()
FIRM_STEMS = tuple(a + b for a in _FIRM_STEMS for b in _FIRM_ENDINGS)
FIRM_KINDS = tuple("Mills Works Lines Labs Foundry Motors Press Bank Foods Yards Glass Mines".split())

PROFESSIONS = tuple(
    """
    baker teacher painter lawyer doctor pilot sailor farmer miner singer writer poet judge nurse tailor
    mason carpenter chemist botanist printer weaver smith cook dancer sculptor geologist banker barber
    butcher fisher gardener hunter jeweller librarian merchant potter surveyor translator drummer
    clockmaker
    """.split()
)

PRODUCTS = tuple(
    """
    ships clocks lamps ropes paper carpets engines bicycles candles soap bottles boots gloves hats
    pianos violins radios cameras tires bricks tiles nails tools toys pens pencils chairs tables doors
    windows pumps boilers sails nets barrels coins mirrors pots knives buttons
    """.split()
)

REGIONS = tuple(a + b for a in "Arl Bor Cal Dol Est Fal".split() for b in "onia avia ovia land".split())

YEARS = tuple(str(year) for year in range(1850, 2000))
