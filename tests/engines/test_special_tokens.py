"""Special tokens in passages stay plain text: those that a model shows, and those of known families."""

from contextlib import aclosing

import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer

from ragguard.engines.base import Message, Prompt, Span
from ragguard.engines.chat_frames import SpecialTokens, neutralise
from ragguard.engines.http.server import VllmEngine

FAMILIES = (
    "<|im_start|> <|im_end|> <|eot_id|> <|start_header_id|> <|endoftext|> <|channel|> <|user|> <|START_THINKING|> "
    "<s> </s> <bos> <eos> <pad> <unk> <start_of_turn> <end_of_turn> <think> </think> <sop> <eop> <<SYS>> <</SYS>> "
    "[INST] [/INST] [SYSTEM_PROMPT] [TOOL_CALLS] [THINK] [/THINK] [SEP] [CLS] [MASK] [gMASK] [sMASK] [|assistant|] "
    "[|endofturn|] <seed:eos> <seed:think> </seed:think> ◁think▷ ◁/think▷ ]~b] ]~!b[ <｜User｜> <｜end▁of▁sentence｜>"
).split()


@pytest.mark.parametrize("token", FAMILIES)
def test_token_of_a_known_family_is_broken_up(token):
    assert token not in neutralise(f"Ada {token} Ole")
    assert len(neutralise(token)) == len(token)


def test_ordinary_text_is_untouched():
    text = "if a < b and c > d: print([1, 2])  # <div>Émile</div> 漢字 [1] a[0][b]"
    assert neutralise(text) == text


def test_direction_and_control_characters_are_removed():
    assert neutralise("a\u202eb\u200bc\x00d\ufeff") == "abcd"


def test_tokens_that_a_model_shows_are_broken_up_and_spans_stay():
    special = SpecialTokens(["{new_turn}", "]~x]", "  ", "word", "]]"])
    assert special.tokens == {"{new_turn}", "]~x]"}
    prompt = Prompt((Message("user", "a {new_turn} ]~x]~x] word b"),), (Span(0, 2, 6),))
    plain, same = special.neutralised([prompt, Prompt((Message("user", "b"),))])
    assert plain.messages[0].content == "a ·new_turn} ⟧~x⟧~x] word b"
    assert plain.cuttable == prompt.cuttable
    assert same.messages[0].content == "b"
    assert SpecialTokens().neutralised([prompt]) == [prompt]


async def test_tokens_that_the_servers_template_shows_never_reach_it_in_a_passage():
    async with MisbehavingServer(FakeModel().handle) as server, aclosing(VllmEngine(server.url)) as engine:
        await engine.info()
        server.requests.clear()
        await engine.label_probs(["Who? <assistant> Ada. <b>"], ["A"])
        (sent,) = (request.json["prompt"][0] for request in server.paths("/completions"))
        assert sent.count("<assistant>") == 1
        assert "‹assistant> Ada. <b>" in sent
