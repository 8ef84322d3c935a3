package apiconversion

import (
	"encoding/json"
	"slices"
)

// mostRounds limits how often restore looks for values that are consistent with each other. Values that users wrote are
// consistent in the first round. Dropping a value can invalidate another value that a rule reads together with it. After the
// last round, restore drops all values that rules read.
const mostRounds = 3

// restore returns plain, the result of the rules for source, with the preserved values of its version. It drops values
// that contradict the source. The image is the result converted back by the rules.
func (c *conversion) restore(r *run, source, plain map[string]any, kept []difference) (result, image map[string]any, err error) {
	for round := 1; ; round++ {
		result = patched(plain, kept)
		if image, err = c.reverse.apply(r, result, true); err != nil {
			return nil, nil, err
		}
		seen := comparison{conversion: c, source: source, plain: plain, image: image}
		var agreed []difference
		settled := true
		for _, d := range kept {
			if !seen.contradict(d) {
				agreed = append(agreed, d)
				continue
			}
			settled = false
			if merged, ok := c.merged(d, plain); ok && round == 1 {
				agreed = append(agreed, merged)
			}
		}
		if settled {
			return result, image, nil
		}
		if kept = agreed; round == mostRounds {
			kept = c.aside(kept, plain)
		}
	}
}

// aside returns the values that only add to the result of the conversion and have no place in the source: no rule writes
// them, or reads them in the opposite direction.
func (c *conversion) aside(kept []difference, plain map[string]any) (all []difference) {
	for _, d := range kept {
		_, made := d.path.get(plain)
		written := slices.ContainsFunc(c.rules, func(rule rule) bool { return d.path.overlaps(rule.destination) })
		read := slices.ContainsFunc(c.reverse.rules, func(back rule) bool { return back.readsFrom(d.path) })
		if !d.absent && !made && !written && !read && lookup(c.source, d.path) == nil {
			all = append(all, d)
		}
	}
	return all
}

// comparison is the state of checking a result with restored values.
type comparison struct {
	*conversion
	source, plain, image map[string]any
}

// contradict reports whether the source has another value than d, a difference in the target version, has after
// conversion to the source's version.
func (c comparison) contradict(d difference) bool {
	for i := range c.reverse.rules {
		back := &c.reverse.rules[i]
		switch {
		case !back.readsFrom(d.path):
		case back.transformation == nil && c.contradictCopy(d, back.field, back.destination):
			return true
		case back.transformation != nil && c.differ(back.destination):
			return true
		}
	}
	return c.contradictCopy(d, nil, nil)
}

// differ reports whether source and image are different there.
func (c comparison) differ(path Path) bool {
	says, found := path.get(c.source)
	looks, foundImage := path.get(c.image)
	return found != foundImage || !equal(says, looks)
}

// contradictCopy is contradict for a value that the opposite direction copies from one path to another.
func (c comparison) contradictCopy(d difference, from, to Path) bool {
	rest, inside := d.path.within(from)
	if !inside {
		return c.differ(to)
	}
	elsewhere := endsAlong(c.reverse.moved, d.path, len(from))
	if to = to.join(rest...); elsewhere || endsAlong(c.reverse.written, to, len(to)-len(rest)) {
		return false
	}
	says, _ := to.get(c.source)
	value := d.value
	if d.absent {
		value, _ = d.path.get(c.plain)
	}
	if isEmpty(value) && hasFields(says) {
		return false // it is only an empty object, and the source has one that looks empty in the target version
	}
	// Compare only what the target can represent: the source may have other values at the same path.
	saysHere, said := c.here(d.path, c.source, to)
	looksHere, shown := c.here(d.path, c.image, to)
	return said != shown || said && !equal(saysHere, looksHere)
}

// here returns the value of an object of the source's version at a path, limited to what the target can represent.
func (c comparison) here(target Path, object map[string]any, path Path) (any, bool) {
	value, found := path.get(object)
	schema := lookup(c.target, target)
	if !found || schema == nil {
		return nil, false
	}
	return project(value, schema, nil, nil)
}

// merged returns the items of a list that changed in the source, with the preserved values of each item. It matches
// items by their keys in lists that have keys, and otherwise by equality in the source's version.
func (c *conversion) merged(d difference, plain map[string]any) (difference, bool) {
	before, _ := d.value.([]any)
	made, _ := d.path.get(plain)
	now, _ := made.([]any)
	there, here := lookup(c.source, c.reverse.copyOf(d.path)), lookup(c.target, d.path)
	if len(before) == 0 || len(now) == 0 || there == nil {
		return difference{}, false
	}
	shown, ok := project(d.value, there, nil, nil)
	if ok {
		shown, ok = project(shown, here, nil, nil)
	}
	looks, isList := shown.([]any)
	if !ok || !isList {
		return difference{}, false
	}
	known := map[string][]int{}
	for i := range looks {
		identity := identify(looks[i], here)
		known[identity] = append(known[identity], i)
	}
	items := make([]any, len(now))
	for i, item := range now {
		items[i] = item
		identity := identify(item, here)
		same := known[identity]
		if len(same) == 0 {
			continue
		}
		known[identity] = same[1:]
		all, isObject := before[same[0]].(map[string]any)
		look, looksLikeObject := looks[same[0]].(map[string]any)
		if object, ok := item.(map[string]any); ok && isObject && looksLikeObject {
			items[i] = patched(object, differences(all, look))
		}
	}
	return difference{path: d.path, value: items}, true
}

// identify returns the key that distinguishes an item of a list from the others.
func identify(item any, list *shape) string {
	if object, isObject := item.(map[string]any); isObject && len(list.XListMapKeys) > 0 {
		keys := make([]any, len(list.XListMapKeys))
		for i, key := range list.XListMapKeys {
			keys[i] = object[key]
		}
		item = keys
	}
	text, _ := json.Marshal(item) // which came from JSON
	return string(text)
}

// copyOf returns the path to which a path of the source is copied if no rule applies.
func (c *conversion) copyOf(path Path) Path {
	for i := len(c.rules) - 1; i >= 0; i-- {
		if rest, inside := path.within(c.rules[i].field); inside && c.rules[i].transformation == nil {
			return c.rules[i].destination.join(rest...)
		}
	}
	return path
}

func isEmpty(value any) bool {
	fields, isObject := value.(map[string]any)
	return isObject && len(fields) == 0
}

func hasFields(value any) bool {
	fields, _ := value.(map[string]any)
	return len(fields) > 0
}

// endsAlong reports whether the tree has a path of more than a number of steps that equals the given path or one of its
// parents.
func endsAlong(tree *pathTree, path Path, steps int) bool {
	for i := steps + 1; i <= len(path); i++ {
		if tree.at(path[:i]...).ends() {
			return true
		}
	}
	return false
}
