from journal.core.chain import GENESIS, Link, first_break, link_hash


def chain(contents):
    links, previous = [], GENESIS
    for number, content in enumerate(contents, start=1):
        previous = link_hash(previous, content)
        links.append(Link(number, content, previous))
    return links


def test_an_untouched_chain_holds():
    assert first_break(chain([{"a": 1}, {"b": 2}, {"c": 3}])) is None


def test_an_altered_entry_is_named():
    links = chain([{"a": 1}, {"b": 2}, {"c": 3}])
    links[1] = links[1]._replace(content={"b": 99})
    assert first_break(links) == 2


def test_a_removed_entry_is_named():
    links = chain([{"a": 1}, {"b": 2}, {"c": 3}])
    del links[1]
    assert first_break(links) == 2
