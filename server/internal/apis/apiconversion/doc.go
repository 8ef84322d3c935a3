// Package apiconversion converts objects between the versions of an API by the rules of an APIConversion.
//
// Compile checks the rules against the schemas of all versions, once, and makes a Converter of them. Converting an object
// takes three steps:
//
//  1. Rules move fields, and transform what they move by CEL. What no rule names stays under its path, where the schema of
//     the target version has a place for it. An object that a CEL expression only looks into stays as well.
//  2. What the object keeps of the target version, from an earlier conversion the other way, comes back.
//  3. The result is converted back, by the rules alone. Where that is not the source again, the source has something that
//     the target version can't represent. It goes into the annotation of the source's version, Annotation, as paths and
//     values.
//
// So a round trip is lossless whatever the rules do: step 3 looks at what is lost, and not at what rules could lose. Where
// rules are such that step 2 would spoil that, less comes back. The field "preserve" of a conversion adds nothing to this;
// its paths are checked.
//
// Values are not validated: conversion looks at the types in a schema only, not at enumerations, lengths or required fields.
//
// # What is kept, and comes back
//
// The annotation is text that any user can write. It is never trusted: a kept value comes back only if
//
//   - its path and type are in the schema of the target version, outside of apiVersion, kind and metadata, and
//   - the source does not show another value: converting the result back gives what the source says, in all fields that
//     copying or a rule makes from the kept value.
//
// So when somebody changes a field in one version, what the other version had kept for that field is outdated and dropped,
// and everything else comes back. A forged annotation can set fields that the version at hand can't represent, which its
// author may write through the other version, and nothing else. Annotations and entries in them that can't be read are
// dropped.
//
// Objects are kept field by field, lists as a whole. When a list is changed in one version, each of its items finds again
// what the other version alone has of it: by its keys, if the list has x-kubernetes-list-map-keys, and else if it is the
// same as before. What was kept of lists inside of changed items, or of lists that a CEL expression makes, is gone.
//
// # Rules
//
// Paths are field names joined by dots: spec.size, or .spec.size. Any key can be written in brackets and double quotes:
// spec.limits["example.com/gpu"]. Paths don't lead into lists; a rule transforms a list as a whole.
//
// In CEL, self is the value of the field, with the type that its schema says; without a schema, or where the type is
// int-or-string, it is dynamic. A rule does nothing where its field is absent or null. When the result is optional.none(), or
// null in a field that is not nullable, the destination is absent. The values of a map literal have one type, so that
// objects are written as {'name': dyn(self), 'port': dyn(80)}.
package apiconversion
