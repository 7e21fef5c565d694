"""One model: why its newest release is live or is not, what is live, where that came from, and what was before."""

from dataclasses import dataclass

from slipway.tasks.contracts.measured.canary import CANARY_FILE, CanaryRecord
from slipway.tasks.contracts.stored.artifact import MANIFEST, Layout
from slipway.tasks.contracts.stored.attestation import SIGNATURE, content_digest
from slipway.tasks.contracts.stored.channel import Channel, ChannelEvent
from slipway.tasks.contracts.stored.release import Release, StepResult
from slipway.tasks.pages import reading
from slipway.tasks.pages.planned import planned_uris
from slipway.tasks.pages.reading import Reader, Stored, problems_of
from slipway.tasks.pages.texts import failing, headline, why
from slipway.tasks.pages.trial import Trial, read_trial

PAST_EVENTS = 20
"""How many are listed."""


@dataclass(frozen=True)
class Origin:
    """The live release, and what its files are known by."""

    release: Release
    content_sha256: str
    """Digest of all its files; empty where its manifest cannot be read."""
    key: str
    """Fingerprint of the key that signed it; empty: not signed."""


@dataclass(frozen=True)
class Past:
    """An event of the channel, with the release that it is about, where that can be read."""

    event: ChannelEvent
    release: Release | None
    state: str
    """What has become of the release: live, previous, promoted, rolled-back or refused."""

    @property
    def words(self) -> str:
        """The event, with the reason that the channel has."""
        return why(self.event, None)


@dataclass(frozen=True)
class ModelPage:
    """What is shown of one model."""

    name: str
    channel: Channel | None = None
    live: Origin | None = None
    trial: Trial | None = None
    """The newest candidate that was promoted or refused."""
    canary: CanaryRecord | None = None
    """How the run that has not ended splits the requests."""
    past: tuple[Past, ...] = ()
    more_past: int = 0
    problems: tuple[str, ...] = ()

    @property
    def newest(self) -> ChannelEvent | None:
        """The newest event."""
        return self.channel.history[0] if self.channel and self.channel.history else None

    @property
    def banner(self) -> str:
        """Why the model is as it is, in one sentence."""
        event = self.newest
        if event is None or self.channel is None:
            return "Nothing was released yet." if not self.problems else "What is live is not known."
        live = self.channel.live.release_id if self.channel.live else None
        stays = f"{live} stays live" if live else "nothing is live"
        match event.event:
            case "refused":
                return f"{event.release_id} was {self._refusal(event)}; {stays}."
            case "rolled-back":
                reason = f": {event.reason}" if event.reason else ""
                return f"{event.release_id} was rolled back{reason}; {live} is live again."
            case "promoted":
                held = len(self.trial.passing) if self.trial else 0
                return f"{event.release_id} is live{f': all {held} expectations hold' if held else ''}."

    def _refusal(self, event: ChannelEvent) -> str:
        report = self.trial.report if self.trial else None
        return (
            headline(report) if failing(report) and report else f"refused: {event.reason or 'no reason was recorded'}"
        )


def read_model(name: str, layout: Layout, reader: Reader, run: str = "") -> ModelPage:
    """Everything that the page of a model shows. `run` is the identity of a run that has not ended."""
    stored = reader.read({layout.channel(name): reading.CHANNEL})[layout.channel(name)]
    channel: Channel | None = stored.value
    if channel is None:
        return ModelPage(name, problems=problems_of({"the channel": stored}))
    events = channel.history[:PAST_EVENTS]
    uris = planned_uris(channel, {(event.release_id, event.run) for event in events}, layout, reader)
    live_uri = channel.live.release_uri if channel.live else ""
    releases = reader.read(dict.fromkeys([*uris.values(), *([live_uri] if live_uri else [])], reading.RELEASE))
    live = releases.get(live_uri, Stored())
    tried = next((event for event in channel.history if event.event != "rolled-back"), None)
    return ModelPage(
        name,
        channel,
        _origin(live.value, layout, reader) if live.value else None,
        read_trial(channel, tried.release_id, tried.run, layout, reader) if tried else None,
        _canary(name, run, layout, reader) if run else None,
        tuple(
            Past(
                event,
                releases[uris[event.release_id, event.run]].value,
                channel.state_of(event.release_id) or event.event,
            )
            for event in events
        ),
        len(channel.history) - len(events),
        problems_of({"the live release": live}),
    )


def _canary(name: str, run: str, layout: Layout, reader: Reader) -> CanaryRecord | None:
    plan_uri = layout.plan(name, run)
    plan: StepResult | None = reader.read({plan_uri: reading.RESULT})[plan_uri].value
    uri = f"{layout.evidence(name, str(plan.data.get('release_id')), run)}/{CANARY_FILE}" if plan else ""
    canary: CanaryRecord | None = reader.read({uri: reading.CANARY})[uri].value if plan else None
    return canary


def _origin(release: Release, layout: Layout, reader: Reader) -> Origin:
    folder = layout.artifact("publish", release.plan.stages["publish"].key)
    manifest, signature = f"{folder}/{MANIFEST}", f"{folder}/{SIGNATURE}"
    found = reader.read({manifest: reading.MANIFEST, signature: reading.SIGNATURE})
    files, bundle = found[manifest].value, found[signature].value
    return Origin(
        release,
        content_digest(files.files) if files else "",
        bundle.verificationMaterial.publicKey.hint if bundle else "",
    )
