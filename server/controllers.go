package server

import "context"

func (c *config) startControllers(ctx context.Context) error { return nil }
