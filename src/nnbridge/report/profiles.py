"""The rules of a profile as sentences: for ``nnbridge devices explain`` and for the gallery of shipped profiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nnbridge.devices.evidence import evidence
from nnbridge.devices.profile_conditions import short_name
from nnbridge.devices.profiles import ProfileDevice, ProfileRule
from nnbridge.devices.rules import RuleCondition
from nnbridge.devices.rules.facts import LIST
from nnbridge.devices.rules.sentences import sentence
from nnbridge.devices.rules.syntax import Name, parse, walk
from nnbridge.devices.source_profiles import SourceProfile
from nnbridge.errors import InputError, Reason, near
from nnbridge.report.terminal import Table
from nnbridge.types import OperationCode

OTHERS = "all_others"
"""The key of the rules of operations without rules of their own."""


def profile_as_dict(profile: ProfileDevice, operation: str = "") -> dict[str, Any]:
    """A profile's description and the rules of its operations, or of one; InputError where it has none for that one."""
    rules = {code.name: alternatives for code, alternatives in sorted(profile.rules.items())}
    if profile.others:
        rules[OTHERS] = profile.others
    if operation:
        name = operation.upper()
        if name not in OperationCode.__members__:
            rule = f"an operation of NNAPI{near(name, OperationCode.__members__)}"
            raise InputError(Reason(rule, operation, operand="OPERATION"))
        rules = {name: rules.get(name, rules.get(OTHERS, ()))}
    return {
        "name": profile.name,
        "aliases": list(profile.aliases),
        "feature_level": profile.feature_level,
        "driver_version": profile.version,
        "source": profile.source,
        "verified": profile.verified,
        "numerics": profile.numerics,
        "numbers": evidence(profile).numbers,
        "operands": [{**_condition(made), "at": stage} for stage, conditions in profile.operands.items() for made in conditions],
        "operations": {name: _operation(alternatives) for name, alternatives in rules.items()},
    }


OPEN_NUMERICS = "open: nothing is public, the CPU's arithmetic is used"
"""What is shown for a device whose arithmetic no source states."""


def source_profile_as_dict(profile: SourceProfile, operator: str = "") -> dict[str, Any]:
    """The same of a device that looks at a file's operators."""
    rules = dict(sorted(profile.rules.operators.items()))
    if operator:
        rules = {operator.upper(): rules.get(operator.upper(), ())}
    return {
        "name": profile.name,
        "aliases": list(profile.aliases),
        "level": profile.format,
        "driver_version": profile.version,
        "source": profile.source,
        "verified": profile.verified,
        "numerics": profile.numerics if profile.numerics_source else "",
        "numerics_source": profile.numerics_source or OPEN_NUMERICS,
        "numbers": evidence(profile).numbers,
        "notes": [*profile.notes, *_faults(profile)],
        "operands": [],
        "operations": {
            name: {
                "supported": bool(alternatives),
                "never": "",
                "alternatives": [{"rules": [_condition(made) for made in conditions]} for conditions in alternatives],
            }
            for name, alternatives in rules.items()
        },
    }


def _faults(profile: SourceProfile) -> Iterator[str]:
    """A sentence for each known fault of the device, with its operators."""
    found: dict[str, list[str]] = {}
    for name, alternatives in profile.rules.faults.items():
        for made in (each for conditions in alternatives for each in conditions):
            found.setdefault(made.says or made.sentence, []).append(name)
    yield from (f"Known fault of {', '.join(dict.fromkeys(names))}: {text}" for text, names in found.items())


def profile_tables(data: Mapping[str, Any]) -> list[Table | str]:
    """The same as a table, a row for each rule."""
    lines = [f"{key}: {data[key]}" for key in ("source", "verified") if data.get(key)]
    lines += [data["numbers"], *([f"numerics_source: {data['numerics_source']}"] if data.get("numerics_source") else [])]
    rows = []
    for key, operation in data["operations"].items():
        name = shown_name(key)
        for number, alternative in enumerate(operation["alternatives"]):
            shown = [_line(rule) for rule in alternative["rules"]] or ["always"]
            either = "or " if number else ""
            rows.append((name if not number else "", tuple(f"{either}{line}" for line in shown)))
        if not operation["supported"]:
            rows.append((name, (f"never: {operation['never'] or 'the profile does not list it'}",)))
    rows += [("any operand", (_line(rule) + f" (at {rule['at']})",)) for rule in data["operands"]]
    return [*lines, Table(f"Rules of {data['name']}", ("operation", "supported if"), rows, ruled=True)]


def shown_name(key: str) -> str:
    """An operation's name for people."""
    return "all others" if key == OTHERS else key


def _line(rule: Mapping[str, Any]) -> str:
    says = f', or it says "{rule["says"]}"' if "says" in rule else ""
    uncertain = f" (uncertain: {rule['uncertain']})" if "uncertain" in rule else ""
    source = f" [{rule['source']}]" if "source" in rule else ""
    terms = "".join(f"; {name}: {text}" for name, text in rule.get("terms", {}).items())
    return f"{rule['rule']}{terms}{says}{uncertain}{source}"


def _operation(alternatives: Sequence[ProfileRule]) -> dict[str, Any]:
    open_ones = [rule for rule in alternatives if not rule.never]
    return {
        "supported": bool(open_ones),
        "never": next((rule.never for rule in alternatives if rule.never), ""),
        "alternatives": [{"rules": list(_rules(rule))} for rule in open_ones],
    }


def _rules(rule: ProfileRule) -> Iterator[dict[str, Any]]:
    """The sentences of a rule, with what is known of each."""
    remarks = {name: getattr(rule, name) for name in ("source", "uncertain") if getattr(rule, name)}
    for text in _keys(rule):
        yield {"rule": text, **remarks}
    for made in rule.conditions:
        yield {**remarks, **_condition(made)}
    for made, why in rule.open:
        yield {"rule": f"where {made.sentence}", "uncertain": why}


def _condition(made: RuleCondition) -> dict[str, Any]:
    known = {name: getattr(made, name) for name in ("says", "source", "uncertain") if getattr(made, name)}
    terms = _terms(made)
    known |= {"terms": terms} if terms else {}
    return {"rule": made.sentence + (", or the driver dies" if made.dies else ""), **known}


def _terms(made: RuleCondition) -> dict[str, str]:
    """The meanings of the profile's own names in a condition, and of the names in those."""
    words = made.vocabulary
    found: dict[str, str] = {}
    waiting = [made.node, *([made.when.node] if made.when else [])]
    while waiting:
        for part in walk(waiting.pop()):
            if not isinstance(part, Name) or part.name in words.names or part.name in found:
                continue
            kind, value = words.words.get(part.name, ("", None))
            if kind == LIST and not made.wording:
                found[part.name] = ", ".join(item if isinstance(item, str) else short_name(item) for item in value)
            elif part.name in words.conditions:
                inner = parse(words.conditions[part.name])
                found[part.name] = sentence(inner)
                waiting.append(inner)
    return found


def _keys(rule: ProfileRule) -> Iterator[str]:
    """The rules that have keys of their own."""
    subject = rule.subject or "the first input"
    if rule.types:
        yield f"{subject} is {_either(sorted(code.name for code in rule.types))}"
    if rule.ranks:
        yield f"the rank of {subject} is {_either(rule.ranks)}"
    yield from (f"{name} is a constant" for name in rule.constant)
    yield from (f"{name} is {_either(values)}" for name, values in rule.values.items())
    yield from (f"{name} is at least {bound}" for name, bound in rule.at_least.items())
    yield from (f"{name} is at most {bound}" for name, bound in rule.at_most.items())
    yield from (f"the zero point of {name} is {_either(points)}" for name, points in rule.zero_points.items())
    flags = (
        (rule.same_quantisation, "the first output has the quantisation of the first input"),
        (rule.max_bytes, f"every tensor has at most {rule.max_bytes} bytes"),
        (rule.max_side, f"every side of every tensor is at most {rule.max_side}"),
        (rule.fixed_size, "every dimension is known"),
    )
    yield from (text for flag, text in flags if flag)


def _either(values: Sequence[object]) -> str:
    return " or ".join(map(str, values))
