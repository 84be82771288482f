import pytest

from unkgcp.errors import InputError
from unkgcp.rules import parse, read_rules


@pytest.mark.parametrize(
    ("text", "relations"),
    [
        ("concept:competeswith(A,B) -> concept:rival(B,A)", ["concept:competeswith", "concept:rival"]),
        ("1: /r/IsA(A,B)->/r/IsA(B,A)", ["/r/IsA", "/r/IsA"]),
        ("'is a'(A, B) -> \"kind (of)\"(B, A)", ["is a", "kind (of)"]),
        (r"'don\'t like'(A, B) -> 'back\\slash'(A, B)", ["don't like", "back\\slash"]),
        ("272(A,B) -> 35(B,A)", ["272", "35"]),
        ("0.5: 272(A,B) -> 35(B,A)", ["272", "35"]),
        ("rdf#type(A,B) -> ex-of(B,A)# a comment", ["rdf#type", "ex-of"]),
    ],
)
def test_labels_plain_and_quoted(text: str, relations: list[str]) -> None:
    (rule,) = parse(text)
    assert [rule.body[0].relation, rule.head.relation] == relations


def test_comments_blank_lines_and_the_default_weight() -> None:
    rules = parse("# a heading\n\n  likes(A,B) -> likes(B,A)  # symmetric\n.5 : likes(A,B) -> knows(A,B)\n")
    assert [rule.weight for rule in rules] == [1.0, 0.5]
    assert [rule.place for rule in rules] == ["rules, line 3", "rules, line 4"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("likes(A,B)", "is not understood at its end"),
        ("likes(A,B) -> ", "is not understood at its end"),
        ("-> likes(A,B)", "is not understood at `-> likes(A,B)`"),
        ("likes(A) -> likes(A,A)", "is not understood at `likes(A) -> likes(A,A)`"),
        ("likes(A,B,C) -> likes(A,B)", "is not understood at `likes(A,B,C)"),
        ("likes('A',B) -> likes(A,B)", "is not understood at `likes('A',B)"),
        ("likes(A,B) -> likes(B,A) likes(A,A)", "is not understood at `likes(B,A) likes(A,A)`"),
        ("likes(A,B) -> likes(B,A) & likes(A,A)", "not one atom after one arrow"),
        ("likes(A,B) -> A != B", "not one atom after one arrow"),
        ("'likes(A,B) -> likes(B,A)", "is not understood at `'likes(A,B)"),
        ("!likes(A,B) -> likes(B,A)", "is not understood at `!likes(A,B)"),
        ("2: likes(A,B) -> likes(B,A)", "weight 2 is the degree to which the rule holds"),
        ("0: likes(A,B) -> likes(B,A)", "weight 0 is the degree"),
        ("-1: likes(A,B) -> likes(B,A)", "weight -1 is the degree"),
        ("0.5:", "is not understood at its end"),
        ("likes(A,B) -> likes(A,C)", "variable C is in no atom of the body"),
        ("likes(A,B) & A != D -> likes(B,A)", "variable D is in no atom of the body"),
        ("likes(A,B) & likes(C,D) -> likes(A,D)", "parts that share no variable"),
        ("A != B -> likes(A,B)", "no atom in its body"),
    ],
)
def test_a_wrong_rule_is_one_sentence_with_file_line_and_remedy(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(f"# first line\n{text}\n", source="my.rules")
    message = str(caught.value)
    assert message.startswith("my.rules, line 2: ")
    assert says in message
    assert ";" in message  # the remedy
    assert "\n" not in message


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "is not UTF-8 text"),
        (lambda path: path.write_text("# nothing yet\n"), "holds no rule"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, make, says):
    path = tmp_path / "rules.txt"
    make(path)
    with pytest.raises(InputError, match=says) as caught:
        read_rules(path)
    assert str(path) in str(caught.value)


def test_a_file_of_rules(tmp_path):
    path = tmp_path / "rules.txt"
    path.write_bytes("\ufeff0.5: a(X,Y) -> b(X,Y)\r\na(X,Y) -> a(Y,X)\r\n".encode())
    rules = read_rules(path)
    assert [(rule.weight, rule.head.relation, rule.head.first) for rule in rules] == [
        (0.5, "b", "X"),
        (1, "a", "Y"),
    ]
    assert rules[1].place == f"{path}, line 2"
