package v1alpha1

// DeleteWithPlacementsAnnotation of a Shard allows its deletion while it holds logical clusters, if the value is "true". They are lost
// with the shard.
const DeleteWithPlacementsAnnotation = "core.kcp.io/delete-with-placements"

// QuarantineAnnotation of a Shard is the ID of its store if that was restored or replaced. Nothing is deleted on the word of the shard
// until kubectl kcp check finds no conflict and removes the annotation.
const QuarantineAnnotation = "internal.core.kcp.io/quarantine"

// ShardTrusted is a condition of a Shard that is or was in quarantine. It is False, with ReasonShardRestored, while the quarantine lasts.
const (
	ShardTrusted        = "Trusted"
	ReasonShardRestored = "Restored"
)
