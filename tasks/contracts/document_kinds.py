"""Every kind of document that Slipway stores or reads from people, by name. Later versions must read all of them."""

from collections.abc import Mapping

from tasks.contracts.base import Contract
from tasks.contracts.measured.drill import DrillReport, DrillRequest, DrillStart
from tasks.contracts.measured.gate import GateReport
from tasks.contracts.measured.harness import HarnessReport
from tasks.contracts.measured.measurement import AnswerRow, LevelSummary, RequestRow
from tasks.contracts.site.network_check import NetworkRecord
from tasks.contracts.site.retention import Deletion, RetentionReport, RetentionRequest
from tasks.contracts.site.site import Site
from tasks.contracts.spec.spec import ReleaseSpec
from tasks.contracts.stored.artifact import Claim, Manifest, Removal
from tasks.contracts.stored.attestation import Bundle
from tasks.contracts.stored.channel import Channel
from tasks.contracts.stored.plan import Plan, PlanRequest
from tasks.contracts.stored.release import Checked, Release, RevertRequest, StepResult

DOCUMENTS: Mapping[str, type[Contract]] = {
    "spec": ReleaseSpec,
    "site": Site,
    "plan-request": PlanRequest,
    "revert-request": RevertRequest,
    "retention-request": RetentionRequest,
    "drill-request": DrillRequest,
    "release": Release,
    "plan": Plan,
    "manifest": Manifest,
    "claim": Claim,
    "removal": Removal,
    "channel": Channel,
    "checked": Checked,
    "network-record": NetworkRecord,
    "result": StepResult,
    "gate-report": GateReport,
    "harness-report": HarnessReport,
    "drill-start": DrillStart,
    "drill-report": DrillReport,
    "request-row": RequestRow,
    "answer-row": AnswerRow,
    "level-summary": LevelSummary,
    "retention-report": RetentionReport,
    "deletion": Deletion,
    "signature": Bundle,
}
"""Each key names a file in tests/fixtures/documents/<version>/. A Lease is Kubernetes' own: lease_object.py."""
