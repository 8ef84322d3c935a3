package apiconversion

import (
	"encoding/json"
	"slices"
)

// mostRounds is how often restore tries to find values that agree with each other. What users wrote agrees at once; a value
// that was left out can take another with it, which rules read together with it. In the end, all that rules read is left out.
const mostRounds = 3

// restore returns plain, which the rules made of source, with what was kept of its version. What the source contradicts
// stays out. The image is the result converted back by the rules.
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

// aside returns what only adds to what conversion makes, and the source has no place for: no rule writes it, or reads it on
// the way back.
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

// comparison is what is known of a result in which kept values came back.
type comparison struct {
	*conversion
	source, plain, image map[string]any
}

// contradict tells whether the source says something else than d, which is in the target version, looks like from there.
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

// differ tells whether source and image are different there.
func (c comparison) differ(path Path) bool {
	says, found := path.get(c.source)
	looks, foundImage := path.get(c.image)
	return found != foundImage || !equal(says, looks)
}

// contradictCopy is contradict for what is copied, on the way back, from a path to another.
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
		return false // it is only about an empty object, and the source has one that looks empty to the target
	}
	// Only that counts which the target can represent: the source may have other things in the same place.
	saysHere, said := c.here(d.path, c.source, to)
	looksHere, shown := c.here(d.path, c.image, to)
	return said != shown || said && !equal(saysHere, looksHere)
}

// here returns what an object of the source's version has at a path, as far as there is a place for it in the target.
func (c comparison) here(target Path, object map[string]any, path Path) (any, bool) {
	value, found := path.get(object)
	schema := lookup(c.target, target)
	if !found || schema == nil {
		return nil, false
	}
	return project(value, schema, nil, nil)
}

// merged returns, for a list of which the source has other items now, those items with what was kept of them: of the one
// with the same keys, in lists that have keys, and else of the one that looks the same to the source.
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

// identify returns what an item of a list is told from the others by.
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

// copyOf returns where a path of the source is copied to, unless rules say otherwise.
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

// endsAlong tells whether a path of the tree leads to the given one, or to what that is in, by more than a number of steps.
func endsAlong(tree *pathTree, path Path, steps int) bool {
	for i := steps + 1; i <= len(path); i++ {
		if tree.at(path[:i]...).ends() {
			return true
		}
	}
	return false
}
