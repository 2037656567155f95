"""Small services: quotas, prices, and the search for tagged resources. Written from knowledge of AWS's pages."""

from __future__ import annotations

from ..rules import Call, Service

REFERENCE = "https://docs.aws.amazon.com/service-authorization/latest/reference/"


def quota_arn(call: Call, kind: str, name: str) -> str:
    return call.arn("servicequotas", f"{call.value('ServiceCode') or '*'}/{name}")


quotas = Service("service-quotas", "servicequotas", f"{REFERENCE}list_servicequotas.html", quota_arn, consulted=False)
pricing = Service("pricing", "pricing", f"{REFERENCE}list_awspricelist.html", quota_arn, consulted=False)
tagging = Service(
    "resourcegroupstaggingapi", "tag", f"{REFERENCE}list_amazonresourcegrouptaggingapi.html", quota_arn, consulted=False
)

ROWS = {
    **quotas.rows(
        {
            "GetServiceQuota": quotas.on("*"),
            "ListServiceQuotas": quotas.on("*"),
            "GetAWSDefaultServiceQuota": quotas.on("*"),
            "ListAWSDefaultServiceQuotas": quotas.on("*"),
            "ListServices": quotas.on("*"),
            "GetRequestedServiceQuotaChange": quotas.on("*"),
            "ListRequestedServiceQuotaChangeHistory": quotas.on("*"),
            "ListRequestedServiceQuotaChangeHistoryByQuota": quotas.on("*"),
            "RequestServiceQuotaIncrease": quotas.on("quota=QuotaCode", keys="servicequotas:service=ServiceCode"),
            "ListTagsForResource": quotas.on("*"),
        }
    ),
    **pricing.rows({name: pricing.on("*") for name in ("DescribeServices", "GetAttributeValues", "GetProducts")}),
    **tagging.rows({name: tagging.on("*") for name in ("GetResources", "GetTagKeys", "GetTagValues")}),
}
