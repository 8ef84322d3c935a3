package v1alpha1

// SignersAnnotation of a LogicalCluster that was moved has the public keys, in PEM, of the shards that held it before. Tokens of its
// service accounts that these shards have signed stay valid until the time in the header End of the key. Tokens in Secrets stay valid as
// long as the Secret has them.
const SignersAnnotation = "internal.tenancy.kcp.io/signers"
