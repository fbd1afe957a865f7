SELECT SUM(ol_amount) AS revenue FROM lines, item
WHERE ol_i_id = i_id
  AND ((i_data LIKE '%h' AND ol_quantity BETWEEN 7 AND 17 AND i_price BETWEEN 1 AND 5 AND o_w_id IN (1, 2, 3))
    OR (i_data LIKE '%t' AND ol_quantity BETWEEN 16 AND 26 AND i_price BETWEEN 1 AND 10 AND o_w_id IN (1, 2, 4))
    OR (i_data LIKE '%m' AND ol_quantity BETWEEN 24 AND 34 AND i_price BETWEEN 1 AND 15 AND o_w_id IN (1, 5, 3)))
