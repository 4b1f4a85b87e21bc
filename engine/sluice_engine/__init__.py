"""Our continuous-batching engine. Importing it loads no torch: the scheduler, blocks and admission run without."""
