// Package apiconversion converts objects between the versions of an API by the rules of an APIConversion.
//
// Compile checks the rules against the schemas of all versions once, and returns a Converter. Converting an object takes
// three steps:
//
//  1. Rules move fields, and transform moved values with CEL. A field without a rule stays at its path if the schema of the
//     target version has that path. So does an object that a CEL expression only reads from.
//  2. Values of the target version that the object preserved in an earlier conversion in the opposite direction are restored.
//  3. The result is converted back, by the rules only. Values that differ from the source cannot be represented in the
//     target version. They are stored in the annotation of the source's version, Annotation, as paths and values.
//
// Therefore a round trip is lossless whatever the rules do: step 3 examines actual losses, not losses that rules could
// cause. If step 2 would break this because of the rules, fewer values are restored. The field "preserve" of a conversion
// adds nothing to this; its paths are checked.
//
// Values are not validated: conversion considers only the types in a schema, not enumerations, lengths or required fields.
//
// # Preserved and restored values
//
// The annotation is text that any user can write. It is never trusted: a preserved value is restored only if
//
//   - its path and type are in the schema of the target version, outside of apiVersion, kind and metadata, and
//   - the source does not have another value: converting the result back yields the values of the source in all fields that
//     are copied, or made by a rule, from the preserved value.
//
// Therefore, when a user changes a field in one version, the preserved value of that field in the other version is outdated
// and dropped, and all other values are restored. A forged annotation can set only fields that the current version cannot
// represent, which its author may write through the other version. Annotations, and entries in them, that cannot be parsed
// are dropped.
//
// Objects are preserved field by field, lists as a whole. When a list is changed in one version, each of its items gets back
// its preserved values of the other version: items match by their keys, if the list has x-kubernetes-list-map-keys, and
// otherwise if they are unchanged. Preserved values are lost for lists inside of changed items, and for lists that a CEL
// expression returns.
//
// # Rules
//
// Paths are field names joined by dots: spec.size, or .spec.size. Any key can be written in brackets and double quotes:
// spec.limits["example.com/gpu"]. Paths cannot address items of lists; a rule transforms a list as a whole.
//
// In CEL, self is the value of the field, with the type in its schema; without a schema, or if the type is int-or-string,
// it is dynamic. A rule does nothing if its field is absent or null. If the result is optional.none(), or null in a field
// that is not nullable, the destination is absent. The values of a map literal have one type, so write objects as
// {'name': dyn(self), 'port': dyn(80)}.
package apiconversion
