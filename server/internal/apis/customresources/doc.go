// Package customresources serves the custom resources of every logical cluster. The expensive parts of an API (schema,
// CEL programs, conversion, request scopes) are created once for each distinct definition: one of upstream's handlers,
// shared by all clusters with an equal definition, and removed with the last of them.
package customresources
