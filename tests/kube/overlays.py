"""Overlays generated from the types of `spec.engine.template`, and what of an overlay a pod template must have.

Parts that a rule refuses are drawn again, so a whole overlay has many fields at once and is mostly valid.
"""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final, get_args

from hypothesis import strategies as st
from pydantic import ValidationError

from sluice import contract
from sluice_operator.api import Template
from sluice_operator.api.base import Model
from sluice_operator.api.crd import structural_schema
from sluice_operator.api.patterns import LABEL_KEY
from sluice_operator.api.template.env import EnvFromSource, EnvVarSource
from sluice_operator.api.template.volumes import Volume, VolumeMount
from tests.kube.specs import values

Object = dict[str, Any]

# Fields that only repeat what a pod has anyway, or that every value is refused of.
REPEATING: Final = frozenset(
    {"hostNetwork", "hostPID", "hostIPC", "containers", "initContainers", "capabilities", "seccompProfile", "procMount"}
    | {"appArmorProfile", "seLinuxOptions", "sysctls", "hostPath", "projected", "subPathExpr"}
)
# What the operator or the API server adds to parts of an overlay.
ADDED: Final = frozenset({"apiVersion", "divisor", "defaultMode", "readOnly", "labelSelector"})
OF_THE_POD: Final = (
    "nodeSelector",
    "tolerations",
    "affinity",
    "topologySpreadConstraints",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "imagePullSecrets",
)
OF_ITS_SECURITY: Final = (
    "runAsUser",
    "runAsGroup",
    "fsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "fsGroupChangePolicy",
    "runAsNonRoot",
)
OF_THE_CONTAINER: Final = ("privileged", "allowPrivilegeEscalation", "readOnlyRootFilesystem")
DEFAULTS: Final = {"schedulerName": "default-scheduler"}  # of the API server
_QUANTITIES: Final = frozenset({"sizeLimit"})
_UNITS: Final = {
    **{unit: 1000**power for power, unit in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{unit: 1024**power for power, unit in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
}
# Types of which one field is the source, and no other one is set.
_SOURCES: Final[dict[type[Model], set[str]]] = {
    Volume: {"configMap", "secret", "emptyDir", "persistentVolumeClaim"},
    EnvVarSource: {"secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef"},
    EnvFromSource: {"secretRef", "configMapRef"},
}
_KEY: Final = st.from_regex(LABEL_KEY, fullmatch=True, alphabet=st.characters(codec="ascii"))
# Label keys, of which rules have the pattern where the schema has none.
_KEYS: Final = {
    "topologyKey": _KEY,
    "matchLabelKeys": st.lists(_KEY, max_size=2),
    "mismatchLabelKeys": st.lists(_KEY, max_size=2),
}


@st.composite
def overlays(draw: st.DrawFn) -> Object:
    """An overlay with any of its fields. One whose value does not fit the others is left out."""
    overlay: Object = {}
    for name, strategy in _fields(Template).items():
        if name in REPEATING or name in ("volumes", "volumeMounts") or not draw(st.booleans()):
            continue
        overlay = _with(overlay, name, draw(strategy))
    volumes = draw(st.lists(_of(Volume), max_size=3, unique_by=lambda each: each["name"]))
    overlay = _with(overlay, "volumes", volumes)
    for volume in overlay.get("volumes", []):
        mount = draw(_of(VolumeMount)) | {"name": volume["name"]}
        overlay = _with(overlay, "volumeMounts", [*overlay.get("volumeMounts", []), mount])
    return overlay


def _with(overlay: Object, name: str, value: Any) -> Object:
    changed = overlay | {name: value}
    return changed if _is_valid(Template, changed) else overlay


def _is_valid(model: type[Model], value: Object) -> bool:
    try:
        model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError:
        return False
    return True


def _of(model: type[Model]) -> st.SearchStrategy[Object]:
    fields = {name: strategy for name, strategy in _fields(model).items() if name not in REPEATING}
    required = {info.alias or name for name, info in model.model_fields.items() if info.is_required()}
    sources = {name for name in fields if name in _SOURCES[model]} if model in _SOURCES else set()
    whole = st.fixed_dictionaries(
        {name: strategy for name, strategy in fields.items() if name in required},
        optional={name: strategy for name, strategy in fields.items() if name not in required | sources},
    )
    if sources:
        source = st.one_of(*(st.fixed_dictionaries({name: fields[name]}) for name in sorted(sources)))
        whole = st.builds(lambda first, second: first | second, whole, source)
    return whole.filter(lambda value: _is_valid(model, value))


def _fields(model: type[Model]) -> dict[str, st.SearchStrategy[Any]]:
    schema = structural_schema(model)["properties"]  # type: ignore[arg-type]  # of any type
    found: dict[str, st.SearchStrategy[Any]] = {}
    for field, info in model.model_fields.items():
        name = info.alias or field
        inner = next(_models_in(info.annotation), None)
        if inner is None:
            found[name] = _KEYS.get(name, values(schema[name]))
        elif schema[name]["type"] == "array":
            found[name] = st.lists(_of(inner), min_size=schema[name].get("minItems", 0), max_size=2)
        else:
            found[name] = _of(inner)
    return found


def _models_in(annotation: Any) -> Iterator[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def fields_of(overlay: Object, model: type[Model] = Template, prefix: str = "") -> Iterator[str]:
    """The paths of the fields that an overlay sets."""
    for field, info in model.model_fields.items():
        name = info.alias or field
        if name not in overlay:
            continue
        yield f"{prefix}{name}"
        inner, value = next(_models_in(info.annotation), None), overlay[name]
        if inner is not None:
            for each in value if isinstance(value, list) else [value]:
                yield from fields_of(each, inner, f"{prefix}{name}.")


def all_fields(model: type[Model] = Template, prefix: str = "") -> Iterator[str]:
    """The paths of all fields of an overlay that can change a pod."""
    for field, info in model.model_fields.items():
        name = info.alias or field
        if name in REPEATING:
            continue
        yield f"{prefix}{name}"
        if (inner := next(_models_in(info.annotation), None)) is not None:
            yield from all_fields(inner, f"{prefix}{name}.")


def lost(overlay: Object, template: Object) -> list[str]:
    """What of an overlay a pod template lacks, has otherwise, or has beside it: a sentence each."""
    # An affinity to nothing is none.
    affinity = {kind: terms for kind, terms in (overlay.get("affinity") or {}).items() if any(terms.values())}
    overlay = overlay | {"affinity": affinity or None}
    pod = template["spec"]
    (container,) = pod["containers"]
    metadata, security = template["metadata"], overlay.get("securityContext") or {}
    volumes = {each["name"]: each for each in pod["volumes"]}
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    variables = {each["name"]: each for each in container["env"]}
    found = [
        *(each for name in OF_THE_POD for each in _differs((DEFAULTS | overlay).get(name), pod.get(name), name)),
        *(each for name in ("labels", "annotations") for each in _lacks(overlay.get(name), metadata.get(name), name)),
        *_differs(overlay.get("envFrom"), container.get("envFrom"), "envFrom"),
        *(each for own in overlay.get("env", []) for each in _differs(own, variables.get(own["name"]), own["name"])),
        *(each for own in overlay.get("volumes", []) for each in _differs(own, volumes.get(own["name"]), own["name"])),
    ]
    for own in overlay.get("volumeMounts", []):
        found += _differs(own, mounts.get(own["mountPath"]), own["mountPath"])
    for names, place in ((OF_ITS_SECURITY, pod), (OF_THE_CONTAINER, container)):
        for name in names:
            if security.get(name) is not None:
                found += _differs(security[name], place["securityContext"].get(name), name)
    if (size := overlay.get("shmSize")) is not None:
        found += _differs({"sizeLimit": size, "medium": "Memory"}, volumes.get("shm", {}).get("emptyDir"), "shmSize")
    return found


def _lacks(given: Object | None, found: Object | None, path: str) -> list[str]:
    missing = {key: value for key, value in (given or {}).items() if (found or {}).get(key) != value}
    return [f"{path} lacks {missing}"] if missing else []


def _differs(given: Any, found: Any, path: str) -> list[str]:
    """Sentences on the differences. The default of a field may be missing, and `ADDED` may be there."""
    if isinstance(given, dict) and isinstance(found, dict):
        beside = {key for key in found.keys() - given.keys() - ADDED if found[key] not in ("", False, None)}
        if "labelSelector" in found and "labelSelector" not in given and "topologyKey" in given:
            own = {contract.LABEL_NAME: contract.ENGINE_APP, contract.LABEL_INSTANCE: "chat"}
            beside |= set() if found["labelSelector"] == {"matchLabels": own} else {"labelSelector"}
        inner = [each for key in given for each in _differs(given[key], found.get(key), f"{path}.{key}")]
        return inner + ([f"{path} has {sorted(beside)} beside it"] if beside else [])
    if isinstance(given, list) and isinstance(found, list) and len(given) == len(found):
        return [
            each for at, pair in enumerate(zip(given, found, strict=True)) for each in _differs(*pair, f"{path}[{at}]")
        ]
    is_default = not given and given != 0 and found is None
    is_same = given == found or (path.rpartition(".")[2] in _QUANTITIES and _amount(given) == _amount(found))
    return (
        [] if is_default or is_same or (given is False and found is None) else [f"{path} is {found!r}, not {given!r}"]
    )


def _amount(quantity: Any) -> Decimal:
    digits = str(quantity).rstrip("".join(set("".join(_UNITS))))
    return Decimal(digits) * _UNITS[str(quantity)[len(digits) :]]
