"""Every kind of document that Slipway stores or reads from people, by name. Later versions must read all of them."""

from collections.abc import Mapping

from tasks.contracts.artifact import Claim, Manifest, Removal
from tasks.contracts.attestation import Bundle
from tasks.contracts.base import Contract
from tasks.contracts.channel import Channel
from tasks.contracts.drill import DrillReport, DrillRequest, DrillStart
from tasks.contracts.gate import GateReport
from tasks.contracts.harness import HarnessReport
from tasks.contracts.measurement import AnswerRow, LevelSummary, RequestRow
from tasks.contracts.network_check import NetworkRecord
from tasks.contracts.plan import Plan, PlanRequest
from tasks.contracts.release import Checked, Release, RevertRequest, StepResult
from tasks.contracts.retention import Deletion, RetentionReport, RetentionRequest
from tasks.contracts.site import Site
from tasks.contracts.spec import ReleaseSpec

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
