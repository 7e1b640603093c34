"""botocore as an oracle: its serializers write requests and its parsers read our answers, in both protocols.

botocore's model of today speaks JSON only. The query protocol's names are put back here, as the API reference has them.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import botocore.session
from botocore.model import ServiceModel
from botocore.parsers import create_parser
from botocore.serialize import create_serializer

_LISTS = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "MessageAttributeNameList": "MessageAttributeName",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "TagKeyList": "TagKey",
    "QueueUrlList": "QueueUrl",
    "MessageList": "Message",
    "StringList": "StringListValue",
    "BinaryList": "BinaryListValue",
    "BatchResultErrorEntryList": "BatchResultErrorEntry",
    "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
}
_MAPS = {
    "QueueAttributeMap": ("Attribute", "Name"),
    "MessageSystemAttributeMap": ("Attribute", "Name"),
    "TagMap": ("Tag", "Key"),
    "MessageBodyAttributeMap": ("MessageAttribute", "Name"),
    "MessageBodySystemAttributeMap": ("MessageSystemAttribute", "Name"),
}


@cache
def _json_model() -> dict[str, Any]:
    return botocore.session.get_session().get_component("data_loader").load_service_model("sqs", "service-2")


@cache
def service(protocol: str) -> ServiceModel:
    """Return the model of one of the two protocols."""
    model = copy.deepcopy(_json_model())
    if protocol == "query":
        model["metadata"].update(
            protocol="query", protocols=["query"], xmlNamespace="http://queue.amazonaws.com/doc/2012-11-05/"
        )
        model["metadata"].pop("awsQueryCompatible")
        for operation in model["operations"].values():
            if "output" in operation:
                operation["output"]["resultWrapper"] = f"{operation['name']}Result"
        for name, shape in model["shapes"].items():
            _rename(model, name, shape)
    return ServiceModel(model, "sqs")


def _rename(model: dict[str, Any], name: str, shape: dict[str, Any]) -> None:
    if shape["type"] == "list":
        shape["member"]["locationName"] = _LISTS.get(name, shape["member"]["shape"])
        shape["flattened"] = True
    if shape["type"] == "map":
        _, key = _MAPS[name]
        shape["key"]["locationName"], shape["value"]["locationName"] = key, "Value"
        shape["flattened"] = True
    if shape["type"] == "structure":
        for member in shape["members"].values():
            if member["shape"] in _MAPS:
                member["locationName"] = _MAPS[member["shape"]][0]


def serialize(protocol: str, operation: str, params: dict[str, Any]) -> dict[str, Any]:
    """Have botocore write a request."""
    model = service(protocol).operation_model(operation)
    return create_serializer(protocol, include_validation=True).serialize_to_request(params, model)


def parse(protocol: str, operation: str, status: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
    """Have botocore read an answer."""
    model = service(protocol).operation_model(operation)
    parser = create_parser(protocol)
    response = {"status_code": status, "headers": headers, "body": body, "context": {"operation_name": operation}}
    return parser.parse(response, model.output_shape)
