from hypothesis import given
from hypothesis import strategies as st

from web.secrets import TOKEN, digest_of, new_token, prefix_of, seal, unseal


def test_tokens_differ_are_greppable_and_know_their_prefix():
    made = [new_token() for _ in range(50)]
    assert len({token.text for token in made}) == len({token.prefix for token in made}) == 50
    for token in made:
        assert TOKEN.fullmatch(token.text)
        assert (prefix_of(token.text), token.digest) == (token.prefix, digest_of(token.text))
    assert [prefix_of(text) for text in ("", "fb_x_y", made[0].text + "0", made[0].prefix)] == [None] * 4


@given(st.text(), st.text(min_size=1))
def test_a_sealed_text_comes_back_only_under_its_key(text, key):
    sealed = seal(text, key)
    assert unseal(sealed, key) == text
    assert sealed != seal(text, key)
