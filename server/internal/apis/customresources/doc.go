// Package customresources serves the custom resources of every logical cluster. What is expensive about an API (schema,
// CEL programs, conversion, request scopes) is paid once per distinct definition: one of upstream's handlers for each,
// shared by all clusters that hold an equal definition, and gone when the last of them is.
package customresources
