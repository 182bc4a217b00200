import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.document import parse_json, parse_text, parse_yaml
from jobs.core.errors import InvalidSpec


def documents(characters):
    """Plain data whose texts are made of these characters."""
    leaf = (
        st.none()
        | st.booleans()
        | st.integers(-(2**63) + 1, 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(characters, max_size=20)
    )
    return st.recursive(
        leaf,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(characters, max_size=8), inner, max_size=4)
        ),
        max_leaves=20,
    )


@given(documents(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_plain_data_survives_json(data):
    assert parse_json(json.dumps(data)) == data


@given(documents(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_json_means_the_same_read_as_yaml(data):
    assert parse_yaml(json.dumps(data, ensure_ascii=False)) == data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("true", True),
        ("1e-3", 0.001),
        ("1.", 1.0),
        (".5", 0.5),
        ("+3", 3),
        ("0x1F", 31),
        ("0o17", 15),
        ("010", 10),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ("[1, a]", [1, "a"]),
        ("{a: {b: 1}}", {"a": {"b": 1}}),
        ("{1: x, true: y}", {"1": "x", "true": "y"}),
        ("{<<: {a: 1}}", {"<<": {"a": 1}}),
    ],
)
def test_yaml_is_read_by_the_core_schema_of_1_2(text, value):
    result = parse_yaml(text)
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\na: 2", "the key 'a' stands twice at line 2"),
        ("a: &x [1]\nb: *x", "aliases are not allowed (line 2)"),
        ("[" * 10_000, "nest"),
        ("- " * 10_000, "nested deeper than 64 levels"),
        ("a: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("a: !!binary aGk=", "is of the type bytes"),
        ("a: !!timestamp 2026-01-01", "is of the type date"),
        ("a: .nan", "is not a finite number"),
        ("a: -.inf", "is not a finite number"),
        ("a: 1e999", "is not a finite number"),
        ("a: 9223372036854775808", "more than 64 bits"),
        ("a: " + "9" * 5000, "is not YAML"),
        ("a: 1\n---\nb: 2", "another document"),
        ("{[1]: 2}", "a key must be a text"),
        ('a: "\\0"', "no text can hold"),
        ("a: [", "is not YAML"),
    ],
)
def test_yaml_with_traps_is_refused_in_one_sentence(text, words):
    with pytest.raises(InvalidSpec) as caught:
        parse_yaml(text)
    assert words in caught.value.faults[0][1]


@pytest.mark.parametrize(
    ("text", "pointer", "words"),
    [
        ('{"a": 1, "a": 2}', "", "the key 'a' stands twice"),
        ('{"a": NaN}', "", "NaN is not a number"),
        ('{"a": [1, 1e999]}', "/a/1", "is not a finite number"),
        ("[" * 100_000, "", "nested deeper"),
        ("[" * 70 + "]" * 70, "/0" * 65, "nested deeper than 64 levels"),
        ('{"a": "\\u0000"}', "/a", "no text can hold"),
        ('{"a": "\\ud800"}', "/a", "no text can hold"),
        ('{"a/b~": 99999999999999999999}', "/a~1b~0", "more than 64 bits"),
        ('{"a": 1', "", "at line 1, column 8"),
        ("{'a': 1}", "", "is not JSON"),
    ],
)
def test_json_with_traps_is_refused_where_it_stands(text, pointer, words):
    with pytest.raises(InvalidSpec) as caught:
        parse_json(text)
    assert caught.value.faults[0][0] == pointer
    assert words in caught.value.faults[0][1]


@given(st.text(max_size=60))
def test_no_text_at_all_makes_a_reader_fail_otherwise(text):
    for read in (parse_json, parse_yaml):
        with contextlib.suppress(InvalidSpec):
            read(text)


def test_a_hundred_thousand_keys_are_read_in_one_pass():
    pairs = [f'"k{n}": {n}' for n in range(50_000)]
    assert len(parse_json("{" + ",".join(pairs) + "}")) == 50_000


def test_the_name_of_a_file_decides_the_format():
    assert parse_text("{a: no}", "job.yaml") == {"a": "no"}
    with pytest.raises(InvalidSpec):
        parse_text("{a: no}", "job.JSON")
