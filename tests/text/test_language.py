"""English is told from other languages by its most common words, and only where there are enough words."""

import pytest

from ragguard.text.language import is_english

ENGLISH_TEXT = (
    "The harbour was built in the year 1189, when the emperor gave the town a privilege, and it lies on the river, "
    "about a hundred kilometres from the sea. Many ships come in every day, and most of them bring grain or coal to "
    "the people who live there."
)
OTHERS = {
    "German": "Der Hafen wurde im Jahr 1189 gegründet, als der Kaiser der Stadt ein Privileg gab, und er liegt an dem "
    "Fluss, rund hundert Kilometer vom Meer entfernt. Viele Schiffe kommen jeden Tag an, und die meisten von ihnen "
    "bringen Getreide oder Kohle für die Leute, die dort wohnen und arbeiten, seit es die Stadt gibt.",
    "Dutch": "De haven is de grootste van het land en was lang de grootste van de wereld. Zij ligt in en om de stad en "
    "is van groot belang voor de economie. In de haven werken veel mensen en er komen elk jaar dertigduizend schepen "
    "aan of voorbij, die graan of kolen brengen.",
    "Spanish": "El puerto es uno de los más importantes del mar y está situado al pie de la montaña. Fue construido en "
    "la edad media y ha crecido mucho desde entonces, de modo que hoy recibe millones de pasajeros cada año, además de "
    "grandes cantidades de mercancías de todo el mundo.",
    "Greek": "Το λιμάνι χτίστηκε το έτος 1189.",
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_other_languages_are_no_english(text):
    assert not is_english([text])


def test_table_of_few_words_decides_nothing():
    rows = (
        f"Instrument: Solar scope; Aperture (mm): {n}; Focal length (mm): {n}; Keeper: Rao" for n in range(9)
    )
    assert is_english(["Who keeps the solar scope?", "\n".join(rows)])


def test_english_and_texts_too_short_to_tell_pass():
    assert is_english([ENGLISH_TEXT])
    assert is_english(["Wer gründete Norsol Labs?", "Pia Nordberg"])
    assert is_english(["Ada Berg, Pia Nordberg, Carl Dahl, Regina Rosstrom " * 20])
    assert is_english([])
