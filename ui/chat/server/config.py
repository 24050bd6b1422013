"""The folder that Chainlit runs in: its configuration, our page, our words and our looks.

Written anew at every start, so that a new version never runs with an old one's settings. The page
is Chainlit's own without what it would load from elsewhere: a web font and a style for formulas.
Imports nothing of Chainlit: what stands here must be there before it is imported.
"""

import json
import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from kernelwright.ui.chat.settings import ChatSettings

NAME = "Kernelwright"
PUBLIC = Path(__file__).parents[1] / "public"
# Every kind is taken, and answered in words: a refused upload shows a list of MIME types.
LARGEST_FILE_MB = 10
MOST_FILES = 4

CONFIG = """
[project]
session_timeout = 3600
user_session_timeout = 1296000
allow_origins = []

[features]
unsafe_allow_html = false
latex = false
user_message_markdown = false
auto_tag_thread = false
edit_message = false
allow_thread_sharing = false
favorites = false

[features.spontaneous_file_upload]
enabled = true
max_files = {most}
max_size_mb = {largest}
accept = ["*/*"]

[features.audio]
enabled = false

[features.mcp]
enabled = false

[UI]
name = "{name}"
description = "Makes PyTorch modules faster, and proves it."
language = "en-US"
default_sidebar_state = "closed"
confirm_new_chat = false
cot = "full"
custom_css = "/public/kernelwright.css"
custom_js = "/public/in_turn.js"
custom_meta_url = "/"
custom_meta_image_url = "/public/logo_light.svg"
custom_build = "page"

[meta]
generated_by = "2.12.0"
"""

# Chainlit's words that would be wrong or strange here, by their place in its translations.
WORDS = {
    "chat.watermark": "Speed-ups are measured on this machine. What was not verified is said.",
    # A step says what it is by itself: "Round 1", not "Used Round 1".
    "chat.messages.status.using": "",
    "chat.messages.status.used": "",
    "chat.input.placeholder": "Attach a PyTorch file, or say what to do",
    "auth.login.title": "Come in",
    "auth.login.form.email.label": "Name",
    "auth.login.form.email.required": "a name is needed",
    "auth.login.form.email.placeholder": "your name here",
    "auth.login.form.password.required": "a password is needed",
    "auth.login.form.actions.signin": "Log in",
    # Whatever went wrong, it never says whether it was the name or the password.
    "auth.login.errors.default": "Login failed: name or password is wrong.",
    "auth.login.errors.credentialsSignin": "Login failed: name or password is wrong.",
    "threadHistory.sidebar.title": "Conversations",
    "threadHistory.sidebar.empty": "No conversations yet",
    "navigation.header.readme": "What can be asked",
}

ELSEWHERE = re.compile(r"<link\b[^>]*?(?:https?:)?//[^>]*?/?>", re.DOTALL)


def write_root(settings: ChatSettings) -> Path:
    """Write the folder that Chainlit runs in, and return it.

    Raises:
        OSError: It cannot be written.
    """
    root = settings.folder / "root"
    chainlit = chainlit_folder()
    _fresh(PUBLIC, root / "public")
    _page(chainlit / "frontend" / "dist", root / "page")
    words = root / ".chainlit" / "translations"
    words.mkdir(parents=True, exist_ok=True)
    (root / ".chainlit" / "config.toml").write_text(_config(), encoding="utf-8")
    (words / "en-US.json").write_text(_words(chainlit), encoding="utf-8")
    # Chainlit looks for the language's own file first, and complains when there is none.
    for name in ("chainlit.md", "chainlit_en-US.md"):
        shutil.copyfile(PUBLIC.parent / "chainlit.md", root / name)
    return root


def chainlit_folder() -> Path:
    """Where Chainlit is installed, without importing it."""
    found = find_spec("chainlit")
    assert found is not None, "chainlit is a dependency"
    assert found.origin is not None, "chainlit is no namespace"
    return Path(found.origin).parent


def _config() -> str:
    return CONFIG.format(name=NAME, most=MOST_FILES, largest=LARGEST_FILE_MB)


def _fresh(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def _page(built: Path, target: Path) -> None:
    """The page without links to elsewhere; its scripts and styles stay where they are."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    os.symlink(built / "assets", target / "assets", target_is_directory=True)
    page = (built / "index.html").read_text(encoding="utf-8")
    (target / "index.html").write_text(ELSEWHERE.sub("", page), encoding="utf-8")


def _words(chainlit: Path) -> str:
    words = json.loads((chainlit / "translations" / "en-US.json").read_text(encoding="utf-8"))
    for place, text in WORDS.items():
        *path, last = place.split(".")
        found = words
        for step in path:
            found = found[step]
        if last not in found:
            raise KeyError(f"Chainlit has no words {place!r} any more")
        found[last] = text
    return json.dumps(words, ensure_ascii=False, indent=1)
