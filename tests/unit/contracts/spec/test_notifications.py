"""Notifiers in a site and in a spec: secrets stay out, and a spec names only what its site allows."""

import pytest
from pydantic import ValidationError

from slipway.airflow.notify.notice import VALUES
from slipway.tasks.contracts.notifications import PLACEHOLDERS, Notifications, Notifier

SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"token": "x"}, "holds a secret"),
        ({"headers": {"authorization": "x"}}, "holds a secret"),
        ({"text": "xoxb-1234-abcd"}, "looks like a secret"),
        ({"url": "https://hooks.slack.com/services/T0/B0/x"}, "looks like a secret"),
        ({"url": "https://ann:pass@example.org"}, "looks like a secret"),
        ({"to": ["hf_abcdefghijklmnop"]}, "looks like a secret"),
        ({"text": "{modle} is live"}, "{modle} is not a placeholder"),
    ],
)
def test_secrets_and_unknown_placeholders_are_refused(arguments, words):
    with pytest.raises(ValidationError, match=words):
        Notifier(notifier=SMTP, arguments=arguments)


def test_a_connection_is_named_and_lists_and_flags_are_kept():
    arguments = {"smtp_conn_id": "mail", "to": ["a@example.org"], "priority": 3, "silent": True, "subject": "{title}"}

    assert Notifier(notifier=SMTP, arguments=arguments).arguments == arguments


def test_a_spec_adds_what_its_site_allows():
    site = Notifications(send=(Notifier(notifier="a.B"),), from_specs={SMTP: ("to",)})
    mail = Notifier(notifier=SMTP, arguments={"to": "team@example.org"})
    files = Notifier(notifier=SMTP, arguments={"to": "x@example.org", "files": ["/etc/passwd"]})
    other = Notifier(notifier="os.System")

    assert site.of((mail, files, other)) == (*site.send, mail)
    assert site.refuses(files) == "argument files"
    assert site.refuses(other) == "class os.System"


def test_every_placeholder_has_a_value():
    assert set(VALUES) == PLACEHOLDERS
