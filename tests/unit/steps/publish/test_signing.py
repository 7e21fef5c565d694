"""What publish signs, and what a serving pod refuses before it downloads anything."""

import json
from base64 import b64decode
from dataclasses import replace

import pytest
from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import DigestMismatchError, InputError, SignatureError
from slipway.tasks.contracts.site.signing import Signing, fingerprint
from slipway.tasks.jobs import _release_step
from slipway.tasks.steps import fetch_repository, publish
from tests.fakes.releases import release
from tests.fakes.signing_keys import SigningKey
from tests.fakes.workspace import site, workspace

OURS, THEIRS = SigningKey(), SigningKey()
KEY = release().plan.stages["publish"].key
ROOT = f"s3://bucket/artifacts/publish/{KEY}"


def signing(*accepted):
    return {"signing": {"key_secret": "slipway-signing", "public_keys": [key.public for key in accepted]}}


@pytest.fixture
def space(tmp_path):
    """A workspace whose site accepts OURS, and which signs with it."""
    return replace(workspace(tmp_path, **signing(OURS)), signing_key=OURS.private)


def with_site(space, **changes):
    return replace(space, site=site(**changes))


def store_parts(space, folder, one, engine=b"graph"):
    for stage, name, data in (("assemble", "demo/config.pbtxt", b"name"), ("build", "model.xml", engine)):
        path = folder / f"{one.id}-{stage}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        key = one.plan.stages[stage].key
        made = folder / f"{one.id}-{stage}"
        space.artifacts.store(stage, key, made, inputs={}, producer={}, metrics={}, seconds=0)


def published(space, folder, one=None, **parts):
    one = one or release()
    store_parts(space, folder, one, **parts)
    return publish.run(one, space)


def fetch(space, folder, one=None, named=""):
    one = one or release()
    uri = space.layout.release(one.spec.name, one.id, named)
    return fetch_repository.run(one, uri, space, folder / "models")


def refused(space, folder, one=None):
    """The error of a fetch that leaves nothing to load."""
    with pytest.raises(SignatureError) as caught:
        fetch(space, folder, one)
    assert not list((folder / "models").rglob("*"))
    return caught.value


def change(space, name, edit):
    uri = f"{ROOT}/{name}"
    document = json.loads(space.store.read_bytes(uri))
    edit(document)
    space.store.put_bytes(uri, json.dumps(document).encode())


def other_release():
    """A release of the same model with other keys."""
    one = release()
    stages = {
        stage: planned.model_copy(update={"key": planned.key[::-1].replace(planned.key[0], "e")})
        for stage, planned in one.plan.stages.items()
    }
    plan = one.plan.model_copy(update={"stages": stages, "release_id": "demo-eeeeeeeeeeee"})
    return one.model_copy(update={"id": "demo-eeeeeeeeeeee", "plan": plan})


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_a_signed_release_is_fetched_and_says_whose_signature_it_has(tmp_path, curve):
    key = SigningKey(curve)
    space = replace(workspace(tmp_path, **signing(key)), signing_key=key.private)
    published(space, tmp_path)

    outcome = fetch(space, tmp_path)

    assert f"signed by key {fingerprint(key.public)[:12]}" in outcome.summary
    assert (tmp_path / "models/demo/config.pbtxt").read_bytes() == b"name"


def test_a_run_s_own_document_of_a_signed_release_is_fetched(space, tmp_path):
    published(space, tmp_path)

    assert "verified, " in fetch(space, tmp_path, named="release-run-3.json").summary


def test_the_provenance_names_the_images_of_the_plan_and_not_those_of_a_site_file_that_changed_since(space, tmp_path):
    one = release()
    build = one.plan.stages["build"].model_copy(update={"fields": {"producer": {"image": "tasks:before"}}})
    plan = one.plan.model_copy(update={"stages": {**one.plan.stages, "build": build}})
    published(space, tmp_path, one.model_copy(update={"plan": plan}))

    bundle = json.loads(space.store.read_bytes(f"{ROOT}/provenance.sigstore.json"))
    statement = json.loads(b64decode(bundle["dsseEnvelope"]["payload"]))
    images = {
        each["uri"].removeprefix("docker://")
        for each in statement["predicate"]["buildDefinition"]["resolvedDependencies"]
        if each["name"].startswith("image/")
    }
    assert images == {"tasks:before", "tasks:1", "triton:1"}


def test_without_signing_nothing_is_signed_or_verified(tmp_path):
    space = workspace(tmp_path)
    published(space, tmp_path)

    assert not space.store.exists(f"{ROOT}/model.sig")
    assert fetch(space, tmp_path).summary.endswith("verified")


def test_the_signature_is_there_before_the_artifact_exists(space, tmp_path):
    published(space, tmp_path)

    written = [uri for uri in space.store.written if uri.startswith(ROOT)]
    assert written.index(f"{ROOT}/model.sig") < max(i for i, uri in enumerate(written) if uri.endswith("manifest.json"))


def test_an_unsigned_release_does_not_start(space, tmp_path):
    published(with_site(space), tmp_path)

    error = refused(space, tmp_path)

    assert (error.what, error.exit_code) == (f"there is no signature that can be read at {ROOT}/model.sig", 65)


def test_a_release_with_a_foreign_signature_does_not_start(space, tmp_path):
    foreign = replace(with_site(space, **signing(THEIRS)), signing_key=THEIRS.private)
    published(foreign, tmp_path)

    error = refused(space, tmp_path)

    assert error.what == f"{ROOT}/model.sig was signed by a foreign key"
    assert error.expected == fingerprint(OURS.public)[:12]


def test_a_foreign_signature_under_our_name_does_not_start(space, tmp_path):
    foreign = replace(with_site(space, **signing(THEIRS)), signing_key=THEIRS.private)
    published(foreign, tmp_path)
    ours = {"hint": fingerprint(OURS.public)}
    change(space, "model.sig", lambda bundle: bundle["verificationMaterial"].update(publicKey=ours))

    assert refused(space, tmp_path).what == f"{ROOT}/model.sig is not a signature of its content"


def test_a_changed_byte_does_not_start(space, tmp_path):
    published(space, tmp_path)
    space.store.put_bytes(f"{ROOT}/demo/1/engine/model.xml", b"graqh")

    with pytest.raises(DigestMismatchError):
        fetch(space, tmp_path)

    assert not (tmp_path / "models/demo/1/engine/model.xml").exists()


def test_a_changed_byte_with_a_manifest_to_match_does_not_start(space, tmp_path):
    published(space, tmp_path)
    change(space, "manifest.json", lambda manifest: manifest["files"][0].update(sha256="f" * 64))

    error = refused(space, tmp_path)

    assert "demo/1/engine/model.xml is ffffffffffff in the manifest" in error.found


def test_a_changed_byte_with_a_blake3_digest_to_match_does_not_start(space, tmp_path):
    published(space, tmp_path)
    space.store.put_bytes(f"{ROOT}/demo/1/engine/model.xml", b"graqh")
    change(space, "manifest.json", lambda manifest: manifest["files"][0].update(blake3=blake3(b"graqh").hexdigest()))

    error = refused(space, tmp_path)

    assert "demo/1/engine/model.xml has BLAKE3 " in error.found


def test_a_manifest_without_its_blake3_digests_is_verified_by_what_else_was_signed(space, tmp_path):
    published(space, tmp_path)
    change(space, "manifest.json", lambda manifest: [file.update(blake3=None) for file in manifest["files"]])

    fetch(space, tmp_path)
    assert (tmp_path / "models/demo/1/engine/model.xml").read_bytes() == b"graph"

    (tmp_path / "models/demo/1/engine/model.xml").unlink()
    space.store.put_bytes(f"{ROOT}/demo/1/engine/model.xml", b"graqh")
    with pytest.raises(DigestMismatchError):
        fetch(space, tmp_path)


@pytest.mark.parametrize("edit", [list.pop, lambda files: files.append({**files[0], "path": "demo/2/model.py"})])
def test_a_manifest_with_a_file_more_or_less_does_not_start(space, tmp_path, edit):
    published(space, tmp_path)
    change(space, "manifest.json", lambda manifest: edit(manifest["files"]))

    assert "absent" in refused(space, tmp_path).found


def test_the_signature_of_another_release_does_not_start_this_one(space, tmp_path):
    published(space, tmp_path)
    other = other_release()
    published(space, tmp_path, other)
    theirs = space.store.read_bytes(f"{space.layout.artifact('publish', other.plan.stages['publish'].key)}/model.sig")
    space.store.put_bytes(f"{ROOT}/model.sig", theirs)

    assert refused(space, tmp_path).found == f"it was made for {other.id}, not for {release().id}"


@pytest.mark.parametrize("named", ["release.json", "release-run-3.json"])
def test_another_signed_release_in_the_place_of_this_one_does_not_start(space, tmp_path, named):
    other = other_release()
    published(space, tmp_path, other)
    other_at_this_address = other.model_copy(update={"id": release().id})
    uri = space.layout.release("demo", release().id, named)

    for document in (other, other_at_this_address):
        with pytest.raises(SignatureError) as caught:
            fetch_repository.run(document, uri, space, tmp_path / "models")
        assert caught.value.what == f"{uri} is not the document of its release"


@pytest.mark.parametrize("text", [b"", b"{}", b"not JSON", b'{"mediaType": "text/plain"}'])
def test_a_file_that_is_no_signature_does_not_start(space, tmp_path, text):
    published(space, tmp_path)
    space.store.put_bytes(f"{ROOT}/model.sig", text)

    assert f"{ROOT}/model.sig" in refused(space, tmp_path).what


def test_a_signature_that_is_cut_does_not_start(space, tmp_path):
    published(space, tmp_path)
    envelope = "dsseEnvelope"
    change(space, "model.sig", lambda bundle: bundle[envelope].update(payload=bundle[envelope]["payload"][:-1]))

    assert f"{ROOT}/model.sig" in refused(space, tmp_path).what


def test_both_keys_are_accepted_during_a_rotation(space, tmp_path):
    published(space, tmp_path)
    rotating = replace(with_site(space, **signing(THEIRS, OURS)), signing_key=THEIRS.private)

    fetch(rotating, tmp_path)

    assert _release_step("publish", release(), rotating).stored


def test_what_pods_would_not_start_is_published_again(space, tmp_path):
    published(with_site(space), tmp_path)

    outcome = _release_step("publish", release(), space)

    assert not outcome.stored
    assert fetch(space, tmp_path).summary.endswith(f"signed by key {fingerprint(OURS.public)[:12]}")


def test_a_site_may_sign_before_its_pods_verify(space, tmp_path):
    only_signs = with_site(space, **signing())
    published(with_site(space), tmp_path)

    assert not _release_step("publish", release(), only_signs).stored
    assert _release_step("publish", release(), only_signs).stored


def test_a_pod_of_a_site_that_only_signs_starts_what_is_not_signed(space, tmp_path):
    published(with_site(space), tmp_path)

    assert fetch(with_site(space, **signing()), tmp_path).summary.endswith("verified")


def test_a_key_that_no_pod_would_accept_signs_nothing(space, tmp_path):
    store_parts(space, tmp_path, release())

    with pytest.raises(InputError) as caught:
        publish.run(release(), replace(space, signing_key=THEIRS.private))

    assert caught.value.found == f"a key with fingerprint {fingerprint(THEIRS.public)[:12]}"
    assert space.artifacts.find("publish", KEY) is None


def test_publishing_without_the_key_says_which_field_names_it(space, tmp_path):
    store_parts(space, tmp_path, release())

    with pytest.raises(InputError) as caught:
        publish.run(release(), replace(space, signing_key=""))

    assert "signing.key_secret" in caught.value.remedy
    assert space.artifacts.find("publish", KEY) is None


RSA_KEY = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize("text", ["no key", RSA_KEY.decode(), SigningKey(ec.SECP256K1()).private, OURS.public])
def test_a_text_that_cannot_sign_is_refused_and_never_shown(space, tmp_path, text):
    store_parts(space, tmp_path, release())

    with pytest.raises(InputError) as caught:
        publish.run(release(), replace(space, signing_key=text))

    assert text.splitlines()[-1] not in str(caught.value)
    assert caught.value.expected.startswith("PEM of an unencrypted private key")
    assert text not in repr(replace(space, signing_key=text))


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"key_secret": "a", "kms_key": "arn:aws:kms:eu-west-1:111122223333:key/1234"},
        {"kms_key": "alias/slipway"},
        {"public_keys": ["no key"]},
        {"public_keys": [OURS.public, OURS.public]},
        {"public_keys": [OURS.private]},
        {"public_keys": [SigningKey(ec.SECP256K1()).public]},
        {"public_keys": [OURS.public.replace("M", "-", 1)]},
    ],
)
def test_a_section_that_cannot_work_is_refused(section):
    with pytest.raises(InputError):
        read_contract(Signing, section, "site.yaml")


def test_a_public_key_is_one_key_however_its_lines_break():
    lines = OURS.public.splitlines()
    wrapped = "\r\n".join(
        [lines[0], *(line[i : i + 10] for line in lines[1:-1] for i in range(0, len(line), 10)), lines[-1]]
    )

    assert read_contract(Signing, {"public_keys": [wrapped]}, "site.yaml").public_keys == (OURS.public,)
