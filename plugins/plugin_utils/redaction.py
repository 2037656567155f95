# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Remove secrets from texts that people pass on, such as logs.

A secret is known by its form (keys of AWS, private keys, tokens of well-known services) or by what stands in front of
it (`password=…`, `--api-key …`, `"HF_TOKEN": …`, `curl -u name:…`, `mysql -p…`). What stands in front stays. Nodes may
send anything, so each pattern takes time that is linear in the text: what repeats has a limit, or begins only where
nothing before it could have matched. Control sequences have to be removed before.
"""

from __future__ import annotations

import re

REMOVED = "<removed>"

_NAMES = (
    r"passw(?:or)?d|passphrase|secret|token|credential|signature"
    r"|(?:api|access|private|signing|account|storage|encryption|kaggle)[_-]?key"
)
# Only as the last part of a name: PWD is a folder, and a forward_pass a measurement.
_LAST_NAMES = r"(?:(?<!forward)(?<!backward)[_-]|ssh)pass|[_-]pwd|[_\-\"']auth"
_VALUE = r"""(?:"(?:[^"\\\n]|\\.)+"|'[^'\n]+'|\\"(?:[^"\\\n]|\\[^"\n])+\\"|[^\s,;&"'\\}\])<]+)"""
_ASSIGNED = r"""[\\"']{0,4} {0,8}[:=] {0,8}"""
_NAME = re.compile(rf"{_NAMES}|[_-](?:pass|pwd|auth)$", re.IGNORECASE)
_OPTION = re.compile(rf"""(?<![\w-])(--?[\w-]{{1,80}})((?:\\?["'],)? +){_VALUE}""")
_CASELESS = (
    # Headers, of which the whole value is secret.
    rf"((?:authorization|\bcookie){_ASSIGNED}[\\\"']{{0,4}})[^\n\"'\\]{{1,8192}}",
    r"(\b(?:Bearer|Basic) +)[\w.~+/=-]{16,}",
    rf"((?:{_NAMES})[\w.-]{{0,40}}{_ASSIGNED}){_VALUE}",
    rf"((?:{_LAST_NAMES}){_ASSIGNED}){_VALUE}",
    # A name alone is a token on the web, and a user elsewhere: ssh://git@….
    r"(\bhttps?://)[^\s/:@?#]{1,256}(?=@)",
)
_SHELL_WORD = r"""(?:"[^"\\\n]{1,1024}"|'[^'\n]{1,1024}'|[^\s"'\\]{1,1024})"""
_QUOTE = r"""\\{0,3}["']"""
_BETWEEN_WORDS = r"""(?:\\{0,3}["'],?)? {1,8}(?:\\{0,3}["'])?"""
"""What is between two words of a command line, or of a list in JSON or Python."""
_COLON, _COMMA = r"\s{0,64}:\s{0,64}", r"\s{0,64},\s{0,64}"
_EXACT = (
    # A line of netrc.
    r"(\blogin\s{1,8}\S{1,256}\s{1,8}(?:account\s{1,8}\S{1,256}\s{1,8})?password\s{1,8})\S{1,1024}",
    # `curl -u name:password`. Numbers are the ids of a user and a group.
    r"""((?<![\w-])(?:-u|--(?:proxy-)?user)[ =]["']?[^\s:"'/]{1,128}:)(?!\d+\b)[^\s"'/][^\s"']{0,1024}""",
    # `sshpass -p password`, also after -v, and with or without the blank.
    rf"(\bsshpass(?:{_BETWEEN_WORDS}-[vhV]){{0,3}}{_BETWEEN_WORDS}-p(?:{_BETWEEN_WORDS})?){_SHELL_WORD}",
    # `mysql -ppassword`. Two numbers are ports of a container.
    rf"""(\b(?:mysql|mariadb)[a-z-]{{0,16}}(?=[\s"'\\])[^\n;|&]{{0,128}}?[\s"']-p)(?!\d{{1,5}}:\d){_SHELL_WORD}""",
    # kaggle.json: the name and the key, in any order.
    rf"({_QUOTE}username{_QUOTE}{_COLON}{_QUOTE}[^\s\"'\\]{{1,128}}{_QUOTE}{_COMMA}{_QUOTE}key{_QUOTE}{_COLON}{_QUOTE})"
    r"[0-9a-f]{32}\b",
    rf"({_QUOTE}key{_QUOTE}{_COLON}{_QUOTE})[0-9a-f]{{32}}(?={_QUOTE}{_COMMA}{_QUOTE}username{_QUOTE})",
    r"(://)[^\s/:@]{0,256}:[^\s/@]{1,256}(?=@)",
    r"(hooks\.slack\.com/\w{1,20}/|discord(?:app)?\.com/api/webhooks/)[\w/-]{1,256}",
    # The ids of AWS's access keys, and the keys: these have capitals, small letters and digits, unlike checksums.
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"(?<![\w/+])(?=[a-z0-9/+]{0,39}[A-Z])(?=[A-Z0-9/+]{0,39}[a-z])(?=[A-Za-z/+]{0,39}[0-9])"
    r"[A-Za-z0-9/+]{40}(?![\w/+=])",
    # Session tokens. Public keys, which are as long, begin with AAAA.
    r"(?<![\w/+])(?!AAAA)[A-Za-z0-9/+]{100,}={0,2}",
    # GitHub, Hugging Face, GitLab, Slack, OpenAI, npm, PyPI, NVIDIA, Docker; Stripe; Google; JSON Web Tokens.
    r"(?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_|hf_|gl[a-z]{2,4}-|xox[abeprs]-|xapp-|sk-|npm_|pypi-|nvapi-"
    r"|dckr_pat_)[\w-]{16,}",
    r"(?<![A-Za-z0-9])[srp]k_(?:live|test)_\w{8,}",
    r"(?<![\w-])AIza[\w-]{35}(?![\w-])",
    r"(?<![\w-])eyJ[\w-]{8,4096}\.[\w-]{8,16384}\.[\w-]{0,4096}",
)
_PATTERNS = [*(re.compile(text, re.IGNORECASE) for text in _CASELESS), *map(re.compile, _EXACT)]
"""What is in a group stays."""

_HEXADECIMAL = re.compile(r"(?<![\w/@-])[0-9a-f]{40}(?![\w/-])")
"""A key of Weights & Biases has the form of git's commits. A path or a URL has a commit."""
_COMMIT = re.compile(r"commit|revision|\b(?:rev|ref|head|tree|parent|merge|sha-?1|blob|tag|version)\b", re.IGNORECASE)
_COMMIT_DISTANCE = 48
"""So many characters before a commit, on its line, one of these words decides that it is none of a key."""

_MARK = re.compile(r"-----(BEGIN|END) [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_LONGEST_KEY = 16384
"""Characters of a private key, with what a log puts in front of each line."""


def redact(text: str) -> str:
    """Return the text without secrets."""
    text = _OPTION.sub(_without_value, _without_private_keys(text))
    for pattern in _PATTERNS:
        text = pattern.sub(lambda match: "".join(match.groups()) + REMOVED, text)
    return _HEXADECIMAL.sub(_without_key, text)


def _without_value(option: re.Match[str]) -> str:
    """Remove the value of an option of a command line if the option's name is one of a secret."""
    return f"{option[1]}{option[2]}{REMOVED}" if _NAME.search(option[1]) else option[0]


def _without_key(word: re.Match[str]) -> str:
    """Remove 40 hexadecimal digits unless the words before them show that they are a commit."""
    before = word.string[max(0, word.start() - _COMMIT_DISTANCE) : word.start()].rpartition("\n")[2]
    return word[0] if _COMMIT.search(before) else REMOVED


def _without_private_keys(text: str) -> str:
    """Remove private keys, also those whose beginning or end is missing."""
    parts: list[str] = []
    position = 0

    def cut(start: int, stop: int) -> None:
        nonlocal position
        parts.extend((text[position:start], REMOVED))
        position = stop

    begin = None
    for mark in _MARK.finditer(text):
        if begin and mark.start() > begin.end() + _LONGEST_KEY:
            cut(begin.start(), begin.end() + _LONGEST_KEY)
            begin = None
        if mark[1] == "BEGIN":
            begin = begin or mark
        else:
            cut(begin.start() if begin else max(position, mark.start() - _LONGEST_KEY), mark.end())
            begin = None
    if begin:
        cut(begin.start(), begin.end() + _LONGEST_KEY)
    return "".join([*parts, text[position:]])
