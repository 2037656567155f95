"""EC2's data source for a machine without the firmware by which cloud-init recognizes EC2."""

from cloudinit import sources
from cloudinit.sources.DataSourceEc2 import CloudNames, DataSourceEc2


class DataSourceLocalCloud(DataSourceEc2):
    metadata_urls = ["http://169.254.169.254"]

    def _get_cloud_name(self):
        return CloudNames.AWS


def get_datasource_list(depends):
    required = (sources.DEP_FILESYSTEM, sources.DEP_NETWORK)
    return sources.list_from_depends(depends, [(DataSourceLocalCloud, required)])
