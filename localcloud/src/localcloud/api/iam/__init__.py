"""Identity and Access Management: the records. What a policy allows is decided in localcloud/iam."""
