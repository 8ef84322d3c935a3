package v1alpha1

// SignersAnnotation of a LogicalCluster that was moved has the public keys, in PEM, of the shards that held it before: tokens of its service
// accounts that they have signed stay valid.
const SignersAnnotation = "internal.tenancy.kcp.io/signers"
