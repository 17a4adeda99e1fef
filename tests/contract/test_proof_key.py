import pytest

from agentdyno.contract.proof import DEVELOPMENT_KEY, KEY_BYTES, ProofError, key_from_environment


def test_the_public_key_stands_in_for_none():
    assert key_from_environment({}) == key_from_environment({"AGENTDYNO_PROOF_KEY": ""}) == DEVELOPMENT_KEY
    assert len(DEVELOPMENT_KEY) == KEY_BYTES


def test_a_key_in_hex():
    assert key_from_environment({"AGENTDYNO_PROOF_KEY": "0f" * KEY_BYTES}) == b"\x0f" * KEY_BYTES


@pytest.mark.parametrize("text", ["secret", "0f" * 15, "0f" * 17, "0x" + "0f" * 15, " " + "0f" * 16, "zz" * 16])
def test_anything_else_is_a_sentence_that_does_not_quote_it(text):
    with pytest.raises(ProofError, match="32 hex digits") as refused:
        key_from_environment({"AGENTDYNO_PROOF_KEY": text})
    assert text not in str(refused.value)
