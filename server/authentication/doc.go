// Package authentication makes service account tokens belong to a logical cluster: they carry its name, are checked
// against the objects of that cluster, and tell every later step where their account lives.
package authentication
